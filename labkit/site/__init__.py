"""The web edition: the labs as static pages to read and search, online and offline."""
