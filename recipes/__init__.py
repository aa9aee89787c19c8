"""YAML run configurations: `train_hanclip.py --config recipes/<name>.yaml`."""
