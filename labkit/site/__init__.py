"""The web edition: the labs as static pages, to read, look and search, online and offline."""
