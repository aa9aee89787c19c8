"""Files that travel to a Hub repository beside the weights."""
