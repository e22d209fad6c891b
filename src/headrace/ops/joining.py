"""Joining and cutting: concat, stack, split, tile, pad."""
