"""Names of repositories, and the files of one commit."""
