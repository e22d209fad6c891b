"""Input producers, batches and queue runners."""
