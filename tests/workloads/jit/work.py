"""Uses a second of CPU."""
import time


def burn_leaf(x):
    for i in range(2000):
        x = (x * 31 + i) & 0xFFFF
    return x


def burn_branch(x):
    return sum(burn_leaf(x + i) for i in range(50))


total = 0
while time.process_time() < 1:
    total = burn_branch(total) & 0xFFFF
print(total)
