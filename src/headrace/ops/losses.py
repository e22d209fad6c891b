"""Cross entropies and other losses on logits."""
