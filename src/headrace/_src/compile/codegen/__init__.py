"""LLVM assembly as text: registers, control flow, vector functions, loops."""
