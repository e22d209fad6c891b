"""Convolutions, pools, normalisation, softmax, losses, CTC and embeddings."""
