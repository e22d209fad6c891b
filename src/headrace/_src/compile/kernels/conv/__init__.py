"""Direct convolutions, and the candidates that are raced."""
