"""Python 2 sources as Python 3. In: the text of a file. Out: text that Python 3 parses, with the
same lines, and the kinds of change that were made.

`lexer`        the tokens of either language
`statements`   the grammar that changed: print, exec, raise, except and others
`builtins`     Python 2's built-in functions, for modules that are written for it
"""

from headrace._src.compat.python2.statements import Translation, translate

__all__ = ["Translation", "translate"]
