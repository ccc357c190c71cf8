"""`python docs/picture.py REPORT.html docs/images/report.png`: the README's picture.

It is the first screen of a report, which shows no sentence of a corpus. Needs chromium and its
driver, and selenium ([dev]).
"""

import shutil
import sys
from pathlib import Path

# A window of 1,200 × 900, drawn as 960 × 720 points.
WINDOW = {"width": 1200, "height": 900, "deviceScaleFactor": 0.8, "mobile": False}


def main() -> None:
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        sys.exit("usage: python docs/picture.py runs/demo_de_en/report.html docs/images/report.png")
    page, picture = (Path(argument).resolve() for argument in sys.argv[1:])
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", WINDOW)
        driver.get(page.as_uri())
        driver.save_screenshot(str(picture))
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
