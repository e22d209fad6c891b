"""Plans: buffers and calls, their memory and barriers, and what verifies them."""
