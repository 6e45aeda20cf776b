"""picture: a farm that draws the Mandelbrot set with letters. The workers compute the lines."""
import hpvm

LINES, COLUMNS = 21, 64
SHADES = " .:-=+*%@#"


def compute(line):
    """Returns a line of the picture."""
    text = ""
    for column in range(COLUMNS):
        cx, cy = -2.2 + 3.2 * column / COLUMNS, -1.2 + 2.4 * line / (LINES - 1)
        x = y = 0.0
        steps = 0
        while steps < 1000 and x * x + y * y < 4:
            x, y = x * x - y * y + cx, 2 * x * y + cy
            steps += 1
        text += SHADES[9 if steps == 1000 else min(steps, 8)]
    return text


if __name__ == "__main__":
    hpvm.start()                                    # joins the machine, or starts one that ends with this process
    with hpvm.Pool(4) as pool:
        print("\n".join(pool.map(compute, range(LINES))))
