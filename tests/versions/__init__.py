"""Versions that meet: schemas of earlier releases with jobs in every state, and schemas of later ones under this code."""
