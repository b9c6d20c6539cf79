"""Turns event bodies into columns: JSON, CSV, Avro and Parquet, compression, and the broker's metadata of each event.

A decoder reports the rows it found and the bodies it could not read. It never raises because of what a body contains.
"""
