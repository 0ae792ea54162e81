"""The rim towards the network: files fetched in pieces, archives taken apart."""
