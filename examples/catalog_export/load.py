"""``python -m catalog_export.load``: create the catalogue's tables in the queue's database, and fill them."""

import psycopg

from .catalog import load
from .jobs import app

if __name__ == "__main__":
    with app, psycopg.connect(app.dsn) as conn:
        print(f"{load(conn)} courses are in the catalogue.")
