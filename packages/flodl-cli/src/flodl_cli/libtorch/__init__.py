"""The libtorch manager: what is published, what is installed here, how programs find it."""
