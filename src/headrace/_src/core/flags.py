"""tf.flags, which is also tf.app.flags: flags of the command line. In: definitions, and sys.argv.
Out: `FLAGS.name`. The flags are absl's, in its one registry.

This module has TensorFlow's additions to absl: older programs use other names for a definition's
arguments, and read flags without parsing the command line first. One addition is ours: a program
may define `log_dir`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import absl.logging  # noqa: F401, defines flags
from absl import flags

from headrace._src.core.export import export_value

__all__ = [
    "FLAGS",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_string",
]

flags.disclaim_key_flags()  # a definition belongs to the module that calls a function of this one

# absl.logging defines this flag, and so do many programs: before TensorFlow 1.5 its flags weren't
# absl's, so there was no conflict. The program's definition comes later, so it wins.
flags.FLAGS["log_dir"].allow_override = True

_OLD_NAMES = {"flag_name": "name", "default_value": "default", "docstring": "help"}


class _ParsedWhenRead:
    """absl's FLAGS; reading a flag parses the command line if that hasn't been done."""

    def __getattribute__(self, name: str) -> Any:
        if name == "_parse_flags":
            return _parse_flags
        if not hasattr(flags.FlagValues, name) and name[:2] != "__" and not flags.FLAGS.is_parsed():
            flags.FLAGS(sys.argv)
        return getattr(flags.FLAGS, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(flags.FLAGS, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(flags.FLAGS, name)

    def __call__(self, *args: Any, **kwargs: Any) -> list[str]:
        return flags.FLAGS(*args, **kwargs)

    def __getitem__(self, name: str) -> Any:
        return flags.FLAGS[name]

    def __setitem__(self, name: str, flag: Any) -> None:
        flags.FLAGS[name] = flag

    def __contains__(self, name: str) -> bool:
        return name in flags.FLAGS

    def __iter__(self) -> Iterator[str]:
        return iter(flags.FLAGS)

    def __len__(self) -> int:
        return len(flags.FLAGS)

    def __dir__(self) -> list[str]:
        return dir(flags.FLAGS)

    def __repr__(self) -> str:
        return repr(flags.FLAGS)

    def __str__(self) -> str:
        return str(flags.FLAGS)


def _parse_flags(args: Sequence[str] | None = None) -> list[str]:
    """Parse the command line as FLAGS._parse_flags did until TensorFlow 1.4: flags that nobody has
    defined are left alone.
    """
    return flags.FLAGS([sys.argv[0], *(sys.argv[1:] if args is None else args)], known_only=True)


def _with_old_names(define: Callable[..., Any]) -> Callable[..., Any]:
    """A definition whose arguments may have TensorFlow's older names."""

    @functools.wraps(define)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return define(*args, **{_OLD_NAMES.get(k, k): value for k, value in kwargs.items()})

    return wrapper


FLAGS: Any = _ParsedWhenRead()
DEFINE_string = _with_old_names(flags.DEFINE_string)
DEFINE_boolean = _with_old_names(flags.DEFINE_boolean)
DEFINE_bool = _with_old_names(flags.DEFINE_bool)
DEFINE_float = _with_old_names(flags.DEFINE_float)
DEFINE_integer = _with_old_names(flags.DEFINE_integer)

_AS_THEY_ARE = (
    *("DEFINE", "DEFINE_alias", "DEFINE_enum", "DEFINE_enum_class", "DEFINE_flag", "DEFINE_list"),
    *("DEFINE_multi", "DEFINE_multi_enum", "DEFINE_multi_enum_class", "DEFINE_multi_float"),
    *("DEFINE_multi_integer", "DEFINE_multi_string", "DEFINE_spaceseplist"),
    *("adopt_module_key_flags", "declare_key_flag", "disclaim_key_flags", "doc_to_help"),
    *("flag_dict_to_args", "get_help_width", "mark_bool_flags_as_mutual_exclusive"),
    *("mark_flag_as_required", "mark_flags_as_mutual_exclusive", "mark_flags_as_required"),
    *("multi_flags_validator", "override_value", "register_multi_flags_validator"),
    *("register_validator", "set_default", "text_wrap", "validator"),
    *("ArgumentParser", "ArgumentSerializer", "BaseListParser", "BooleanFlag", "BooleanParser"),
    *("CantOpenFlagFileError", "CsvListSerializer", "DuplicateFlagError", "EnumClassFlag"),
    *("EnumClassListSerializer", "EnumClassParser", "EnumClassSerializer", "EnumFlag"),
    *("EnumParser", "Error", "Flag", "FlagHolder", "FlagNameConflictsWithMethodError"),
    *("FlagValues", "FloatParser", "IllegalFlagValueError", "IntegerParser", "ListParser"),
    *("ListSerializer", "MultiEnumClassFlag", "MultiFlag", "UnparsedFlagAccessError"),
    *("UnrecognizedFlagError", "ValidationError", "WhitespaceSeparatedListParser"),
)
for _home, _names in ((__name__, __all__), (flags.__name__, _AS_THEY_ARE)):
    for _name in _names:
        export_value(_home, _name, f"flags.{_name}", f"app.flags.{_name}")
