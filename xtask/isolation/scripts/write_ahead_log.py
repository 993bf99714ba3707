# Opens an SQLite database with a write-ahead log, and leaves the log behind.
import os
import sqlite3

from attempt import attempt

with attempt("write-ahead log"):
    data = sqlite3.connect("database.sqlite")
    data.execute("pragma journal_mode=wal")
    data.execute("insert into items values (2)")
    data.commit()
os._exit(0)
