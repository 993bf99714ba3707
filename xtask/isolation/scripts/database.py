# Inserts into an SQLite database larger than 8 MiB, and rebuilds it.
import sqlite3

from attempt import attempt

with attempt("insert"):
    data = sqlite3.connect("database.sqlite")
    data.execute("insert into items values (1)")
    data.commit()
with attempt("delete and rebuild"):
    data.execute("delete from items")
    data.commit()
    data.execute("vacuum")
