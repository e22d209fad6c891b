"""Running sums and products, segments, bins."""
