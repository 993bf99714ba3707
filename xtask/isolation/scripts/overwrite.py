# Writes over small and large files of the working folder.
from attempt import attempt

for name in ["small.txt", "large.bin", "data/item-0001.txt", "package/model.py"]:
    with attempt(name):
        with open(name, "w") as file:
            file.write("other")
