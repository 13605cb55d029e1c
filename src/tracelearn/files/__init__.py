"""Files: models, moments and checkpoints; ONNX."""
