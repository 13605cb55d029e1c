"""Files: samples in many formats, models, streams with checkpoints."""
