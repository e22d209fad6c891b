"""Random numbers: Philox, the ops that draw, and distributions."""
