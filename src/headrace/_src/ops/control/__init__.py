"""Control flow, functions, tensor arrays and lists, assertions."""
