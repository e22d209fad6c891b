"""Templates: functions whose variables are made by the first call and shared by the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace._src.core import source
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.variables.scope import VariableScope, variable_scope

__all__ = ["Template", "make_template"]


@export("make_template")
def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Any = None,
    **kwargs: Any,
) -> Template:
    """Return `func_` (with `kwargs` given) as a function that makes its variables only once.

    Its variable scope is `name_`, made unique, or `unique_name_`. The first call makes it, or, with
    `create_scope_now_`, this call.
    """
    if kwargs:
        func_ = partial(func_, **kwargs)
    return Template(name_, func_, create_scope_now_, unique_name_, custom_getter_)


class Template:
    """A function with its own variable scope; see make_template."""

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        create_scope_now: bool = False,
        unique_name: str | None = None,
        custom_getter: Any = None,
    ) -> None:
        if name is None:
            raise ValueError("name cannot be None.")
        self._func = func
        self._name = name
        self._unique_name = unique_name
        self._custom_getter = custom_getter
        self._made_at = source.user_line(source.capture())
        self._variable_scope: VariableScope | None = None
        self._has_run = False
        if create_scope_now:
            with self._new_scope(with_name_scope=False) as scope:
                self._variable_scope = scope

    def _new_scope(self, with_name_scope: bool = True) -> variable_scope:
        return variable_scope(
            self._unique_name,
            self._name,
            custom_getter=self._custom_getter,
            auxiliary_name_scope=with_name_scope,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._variable_scope is None:
            with self._new_scope() as scope:
                self._variable_scope = scope
                return self._run(args, kwargs)
        reuse = True if self._has_run else None
        with variable_scope(self._variable_scope, reuse=reuse):
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trainable = get_default_graph().get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        before = len(trainable)
        try:
            result = self._func(*args, **kwargs)
        except Exception as error:
            error.add_note(f"in a template originally defined at {self._made_at}")
            raise
        if self._has_run and len(trainable) != before:
            raise ValueError(
                "Trainable variable created when calling a template after the first time, perhaps "
                "you used tf.Variable when you meant tf.get_variable: "
                f"{trainable[before:]}"
            )
        self._has_run = True
        return result

    @property
    def name(self) -> str:
        """The name of the variable scope, or the base of its future name."""
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        return self._func

    @property
    def variable_scope(self) -> VariableScope | None:
        """The scope of the variables; None before it's made."""
        return self._variable_scope

    @property
    def var_scope(self) -> VariableScope | None:
        return self._variable_scope

    @property
    def variable_scope_name(self) -> str | None:
        """The prefix of the variables' names, with a last slash; None before the scope is made."""
        if self._variable_scope is None:
            return None
        name = self._variable_scope.name
        return name if not name or name.endswith("/") else f"{name}/"

    def _collected(self, key: str) -> list[Any]:
        if self._variable_scope is None:
            return []
        return get_default_graph().get_collection(key, self.variable_scope_name)

    @property
    def global_variables(self) -> list[Any]:
        """The global variables that the function made."""
        return self._collected(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Any]:
        """The local variables that the function made."""
        return self._collected(GraphKeys.LOCAL_VARIABLES)

    @property
    def variables(self) -> list[Any]:
        """The variables that the function made."""
        return self.global_variables + self.local_variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable ones of `variables`."""
        return self._collected(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The non-trainable ones of `variables`."""
        trained = set(self.trainable_variables)
        return [v for v in self.variables if v not in trained]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables
