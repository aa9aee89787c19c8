"""Templates and thin entry files of everything that becomes a page on the Hub."""
