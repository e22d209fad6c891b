"""All-reduce, all-gather and broadcast among processes, and who takes part in them."""
