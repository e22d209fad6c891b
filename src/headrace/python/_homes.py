"""Names below `tensorflow.python` that have no public name: where Headrace has them.

In: "module.name". Out: "tf." and a public name, or "package.module:attribute".
"""

HOMES: dict[str, str] = {}
LACKING: dict[str, str] = {}
