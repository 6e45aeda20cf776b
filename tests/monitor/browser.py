#!/usr/bin/python3
"""Opens `pvm monitor` in a browser while known programs run, and compares what each view shows with what they did.

Needs a running machine, the programs `known` and `circle` in the folder PROGRAMS, the program `pvm` as PVM, and, if hosts are to be
added, the name of a host as FURTHER_HOST. Prints a line for each check: `ok NAME`, or `FAILED NAME: why`.
With SCREENSHOTS, a folder, also writes a picture of each view, light and dark."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PVM = os.environ["PVM"]
PROGRAMS = pathlib.Path(os.environ["PROGRAMS"])
FURTHER_HOST = os.environ.get("FURTHER_HOST")
SCREENSHOTS = os.environ.get("SCREENSHOTS")
# How long a state may take to come on a machine that does much else.
PATIENCE = 120
VIEWS = ["waits", "space-time", "tasks", "hosts", "traffic", "output", "groups", "utilization", "log"]


def until(what, get, is_enough=bool):
    """Returns what `get` returns as soon as that is enough."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            value = get()
        except StaleElementReferenceException:
            value = None
        if value is not None and is_enough(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: {value!r}")
        time.sleep(0.1)


class Monitor:
    """A `pvm monitor`."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([PVM, "monitor", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def link(self):
        """Returns the next link."""
        link = self.process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/open\?token=[0-9a-f]{32}", link), link
        return link

    def end(self):
        self.process.terminate()
        self.process.wait()


class Browser:
    """A browser of its own."""

    def __init__(self, width=1280, height=800):
        options = webdriver.ChromeOptions()
        self.folder = tempfile.mkdtemp(prefix="hpvm-browser-")
        for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                     f"--window-size={width},{height}", f"--user-data-dir={self.folder}"]:
            options.add_argument(word)
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        # Headless windows are a bit smaller than asked for.
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def open(self, address):
        self.driver.get(address)

    def choose(self, view):
        self.driver.find_element(By.TAG_NAME, "body").send_keys(str(VIEWS.index(view) + 1))
        until(view, lambda: self.driver.current_url.endswith(f"#{view}"))

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def text(self):
        return self.script("return document.getElementById('main').innerText") or ""

    def status(self):
        return self.script("return document.getElementById('status').innerText") or ""

    def rows(self, label):
        """Returns the rows of a table, each as a dictionary."""
        return self.script("""
            const table = document.querySelector(`table[aria-label="${arguments[0]}"]`);
            if (!table) return [];
            const texts = (row) => [...row.children].map((cell) => cell.innerText.replace(/ [▲▼]$/, "").trim());
            const heads = texts(table.tHead.rows[0]);
            return [...table.tBodies[0].rows].map((row) => Object.fromEntries(texts(row).map((text, at) => [heads[at], text])));
        """, label)

    def complains_not(self, but=None):
        """Checks that the browser has found nothing wrong with the page, but what matches."""
        found = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        found = [line for line in found if not but or not re.search(but, line)]
        assert not found, found

    def picture(self, name):
        self.driver.save_screenshot(name)

    def end(self):
        self.driver.quit()
        shutil.rmtree(self.folder, ignore_errors=True)


class Proxy:
    """Passes connections on to a port, until they are cut."""

    def __init__(self, port):
        self.port = port
        self.listen(0)
        self.own_port = self.listener.getsockname()[1]

    def listen(self, port):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.sockets = []
        threading.Thread(target=self.accept, args=[self.listener], daemon=True).start()

    def accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.port))
                self.sockets += [near, far]
                for one, other in [(near, far), (far, near)]:
                    threading.Thread(target=self.carry, args=[one, other], daemon=True).start()

    @staticmethod
    def carry(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)

    def cut(self):
        # An accept that waits keeps the socket open: this ends it.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def mend(self):
        self.listen(self.own_port)


class Run:
    """A `pvm run`."""

    def __init__(self, *words):
        self.process = subprocess.Popen([PVM, "run", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def team(self):
        """Returns the tasks of `known` in their order, the rounds and the bytes, as the program says."""
        words = self.process.stdout.readline().split()
        assert words[:1] == ["team"], words
        return words[1:5], int(words[6]), int(words[8])

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def get(port, path, headers=(), name="127.0.0.1"):
    """Returns the status and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.putrequest("GET", path, skip_host=True)
    for key, value in [("Host", f"{name}:{port}"), *headers]:
        connection.putheader(key, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


class Trial:
    """What the checks share."""

    def __init__(self, folder):
        self.folder = folder
        self.monitor = Monitor("--interval", "0.2")
        self.run = Run("-n", "4", PROGRAMS / "known")
        self.tids, self.rounds, self.bytes = self.run.team()
        self.link = self.monitor.link()
        self.port = int(re.search(r":(\d+)/", self.link)[1])
        self.proxy = Proxy(self.port)
        self.browser = Browser()

    def a_link_opens_the_page_once(self):
        self.browser.open(self.link)
        until("live", self.browser.status, lambda text: text.startswith("live"))
        status, _ = get(self.port, self.link.split(str(self.port))[1])
        assert status == 403, status
        assert get(self.port, "/events")[0] == 403
        assert get(self.port, "/open?token=" + "0" * 32)[0] == 403
        assert get(self.port, "/", name="evil.example")[0] == 403

    def waits(self):
        self.browser.choose("waits")
        waiting = until("waits", lambda: self.browser.rows("waiting tasks"), lambda rows: len(rows) == 2)
        says = {row["Task"]: row["Call, and why nothing comes"] for row in waiting}
        first, second, third, fourth = self.tids
        assert says[first].startswith("pvm_barrier(team, 4): 1 of 4 have come; missing:"), says
        assert all(tid in says[first] for tid in self.tids[1:]), says
        assert says[second].startswith(f"pvm_recv({third}, tag 5): {third}"), says
        nodes = self.browser.script("return [...document.querySelectorAll('.node .name')].map((name) => name.textContent)")
        assert sorted(nodes) == sorted(self.tids), nodes
        edges = self.browser.script("return document.querySelectorAll('.edge').length")
        assert edges == 4, edges

    def tasks(self):
        self.browser.choose("tasks")
        rows = until("tasks", lambda: self.browser.rows("tasks"), lambda rows: len(rows) == 4)
        told = {row["Task"]: row for row in rows}
        # Joining the group and the barrier are requests to the daemon, and no messages of tasks.
        for tid, messages in zip(self.tids, [self.rounds, self.rounds, 0, 0]):
            row = told[tid]
            assert (row["Sent"], row["Received"]) == (str(messages), str(messages)), row
            assert row["Program"] == "known" and row["Memory"].endswith("iB"), row
        assert told[self.tids[0]]["State"] == "waits" and told[self.tids[2]]["State"] == "computes", told

    def groups(self):
        self.browser.choose("groups")
        [row] = until("groups", lambda: self.browser.rows("groups"), lambda rows: len(rows) == 1)
        assert (row["Group"], row["Members"], row["In a barrier"]) == ("team", "4", "1 of 4"), row
        assert sorted(row["Missing"].split()) == sorted(self.tids[1:]), row

    def traffic(self):
        self.browser.choose("traffic")
        record = self.browser.script("return page.record.machine.state.tasks")
        sent = [record[tid]["sent"] for tid in self.tids]
        messages = sum(pair[0] for routes in sent for pair in routes)
        size = sum(pair[1] for routes in sent for pair in routes)
        assert messages == 2 * self.rounds, sent
        assert size >= messages * self.bytes, sent
        text = self.browser.text()
        assert "memory" in text and "daemons" in text and "Not recorded" in text, text

    def hosts_come_and_go(self):
        self.browser.choose("hosts")
        rows = until("hosts", lambda: self.browser.rows("hosts"))
        assert sum(int(row["Tasks"]) for row in rows) == 4 and any(row["Role"] == "master" for row in rows), rows
        if not FURTHER_HOST:
            return
        count = len(rows)
        subprocess.run([PVM, "up", FURTHER_HOST], check=True, stdout=subprocess.DEVNULL)
        until("another host", lambda: self.browser.rows("hosts"), lambda rows: len(rows) == count + 1)
        subprocess.run([PVM, "down", FURTHER_HOST], check=True, stdout=subprocess.DEVNULL)
        until("one host less", lambda: self.browser.rows("hosts"), lambda rows: len(rows) == count)
        self.browser.choose("log")
        text = self.browser.text()
        assert f"{FURTHER_HOST} has joined the machine" in text and f"{FURTHER_HOST} has left the machine" in text, text

    def space_time(self):
        self.browser.choose("space-time")
        shares = until("lanes", lambda: self.browser.script("""
            return arguments[0].map((tid) => page.record.tracks.get(tid).looks.share.slice(-1)[0]);""", self.tids), lambda shares: None not in shares)
        # Who waits has waited all the time since the last look.
        assert shares == [1, 1, 0, 0], shares
        drawn = self.browser.script("""
            const canvas = document.querySelector(".lanes canvas");
            const image = canvas.getContext("2d").getImageData(200, 30, canvas.width - 220, 140).data;
            const colours = new Set();
            for (let at = 0; at < image.length; at += 4) if (image[at + 3] === 255) colours.add(`${image[at]},${image[at + 1]},${image[at + 2]}`);
            return [...colours];""")
        assert "59,130,196" in drawn and "240,176,64" in drawn, drawn
        before = self.browser.script("return page.views[1].whole")
        canvas = self.browser.driver.find_element(By.CSS_SELECTOR, ".lanes canvas")
        canvas.send_keys("++")
        after = self.browser.script("return page.views[1].range")
        assert after[1] - after[0] < 0.6 * (before[1] - before[0]), (before, after)
        canvas.send_keys("0")
        assert self.browser.script("return page.views[1].range") is None

    def utilization(self):
        self.browser.choose("utilization")
        count = until("charts", lambda: self.browser.script("return document.querySelectorAll('.chart canvas').length"))
        assert count == 4, count
        last = self.browser.script("const s = page.record.series; return [s.computing, s.waiting, s.stuck].map((list) => list[list.length - 1])")
        assert last == [2, 2, 0], last

    def the_time_can_be_rewound(self):
        self.browser.choose("tasks")
        slider = self.browser.driver.find_element(By.ID, "time")
        self.browser.script("""
            arguments[0].value = arguments[0].min;
            arguments[0].dispatchEvent(new Event("input"));""", slider)
        until("rewound", self.browser.status, lambda text: "rewound" in text)
        shown = self.browser.script("return Object.keys(page.record.machineAt(page.time).state.tasks)")
        first = self.browser.script("return Object.keys(page.record.looks[0].patch.tasks)")
        assert shown == first, (shown, first)
        self.browser.driver.find_element(By.TAG_NAME, "body").send_keys("l")
        until("live", self.browser.status, lambda text: text.startswith("live ") and "rewound" not in text)

    def a_killed_task_goes(self):
        self.browser.choose("tasks")
        victim = self.tids[3]
        subprocess.run([PVM, "kill", victim], check=True, stdout=subprocess.DEVNULL)
        # `pvm run` ends the others of a run of which one was killed.
        until("gone", lambda: self.browser.rows("tasks"), lambda rows: victim not in [row["Task"] for row in rows])
        self.browser.choose("log")
        until("log", self.browser.text, lambda text: f"{victim} has ended" in text)
        self.run.end()

    def a_deadlock_is_named(self):
        self.browser.choose("waits")
        circle = Run("-n", "4", PROGRAMS / "circle")
        until("deadlock", self.browser.text, lambda text: "DEADLOCK: a circle of waits" in text)
        until("title", lambda: self.browser.driver.title, lambda title: title.startswith("DEADLOCK"))
        assert "1 deadlock" in self.browser.status()
        red = self.browser.script("return document.querySelectorAll('.edge.stuck').length")
        assert red == 3, red
        self.screenshots_of(["waits"], "deadlock-")
        circle.end()
        until("no deadlock", lambda: self.browser.driver.title, lambda title: title == "hpvm")
        until("no tasks", self.browser.text, lambda text: "No tasks" in text)

    def names_are_text(self):
        name = "<img src=x onerror=document.title='hacked'>\x1b[31m"
        shutil.copy(PROGRAMS / "circle", self.folder / name)
        hostile = Run("-n", "4", f"{self.folder}/{name}")
        self.browser.choose("tasks")
        until("name", lambda: self.browser.rows("tasks"), lambda rows: any(row["Program"].startswith("<img") for row in rows))
        self.browser.choose("waits")
        until("name", self.browser.text, lambda text: "<img" in text)
        hostile.end()
        assert self.browser.driver.title != "hacked" and not self.browser.script("return document.querySelectorAll('main img').length")

    def a_reload_shows_the_same(self):
        looks = self.browser.script("return page.record.looks.length")
        self.browser.driver.refresh()
        until("live", self.browser.status, lambda text: text.startswith("live"))
        assert self.browser.script("return page.record.looks.length") >= looks

    def the_page_ends_tasks_only_if_it_may(self):
        assert not self.browser.script("return page.mayEnd")
        monitor = Monitor("--control", "--interval", "0.2")
        run = Run("-n", "4", "--on-failure", "wait", PROGRAMS / "known")
        try:
            tids, _, _ = run.team()
            self.browser.open(monitor.link())
            until("live", self.browser.status, lambda text: text.startswith("live"))
            self.browser.choose("tasks")
            find = f"//tr[td[text()='{tids[2]}']]//button"
            [button] = until("a button", lambda: self.browser.driver.find_elements(By.XPATH, find))
            button.click()
            self.browser.driver.switch_to.alert.accept()
            until("ended", lambda: self.browser.rows("tasks"), lambda rows: [row["Task"] for row in rows] == sorted(set(tids) - {tids[2]}))
        finally:
            run.end()
            monitor.end()
        self.browser.open(self.monitor.link())
        until("live", self.browser.status, lambda text: text.startswith("live"))

    def two_browsers_and_a_lost_connection(self):
        other = Browser()
        try:
            link = self.monitor.link().replace(f":{self.port}/", f":{self.proxy.own_port}/")
            other.open(link)
            until("live", other.status, lambda text: text.startswith("live"))
            self.proxy.cut()
            until("lost", other.status, lambda text: "lost" in text)
            time.sleep(0.5)
            assert self.browser.status().startswith("live")
            # What happens meanwhile is not missed.
            run = Run("-n", "4", PROGRAMS / "known")
            tids, _, _ = run.team()
            until("tasks", lambda: self.browser.script("return Object.keys(page.record.machine.state.tasks)"), lambda shown: set(tids) <= set(shown))
            self.proxy.mend()
            until("live", other.status, lambda text: text.startswith("live"))
            until("tasks", lambda: other.script("return Object.keys(page.record.machine.state.tasks)"), lambda shown: set(tids) <= set(shown))
            logs = [one.script("return page.record.log.map((line) => line.text)") for one in (self.browser, other)]
            shorter = min(len(log) for log in logs)
            assert logs[0][:shorter] == logs[1][:shorter], logs
            run.end()
            other.complains_not(but="ERR_")
        finally:
            other.end()

    def cookies(self):
        # One for each monitor that this browser has seen on this computer.
        return "; ".join(f"{one['name']}={one['value']}" for one in self.browser.driver.get_cookies())

    def a_thousand_silent_connections_keep_nobody_out(self):
        silent = []
        for _ in range(1000):
            one = socket.create_connection(("127.0.0.1", self.port))
            one.sendall(b"GET / HTTP/1.1\r\n")
            silent.append(one)
        status, text = get(self.port, "/metrics", [("Cookie", self.cookies())])
        assert status == 200 and text.endswith("# EOF\n"), (status, text)
        assert "hpvm_hosts " in text and 'hpvm_tasks{state="computes"} ' in text, text
        for one in silent:
            one.close()
        assert self.browser.status().startswith("live")

    def one_page_too_many_is_told_so(self):
        pages = []
        refused = None
        while refused is None and len(pages) < 100:
            one = socket.create_connection(("127.0.0.1", self.port))
            one.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {self.cookies()}\r\n\r\n".encode())
            line = one.makefile().readline()
            pages.append(one)
            refused = line if "200" not in line else None
        assert refused and "503" in refused, (refused, len(pages))
        for one in pages:
            one.close()
        assert self.browser.status().startswith("live")

    def a_saved_page_shows_the_same(self):
        status, text = get(self.port, "/save", [("Cookie", self.cookies())])
        assert status == 200
        saved = self.folder / "saved.html"
        saved.write_text(text)
        other = Browser()
        try:
            other.open(saved.as_uri())
            until("recorded", other.status, lambda text: text.startswith("recorded run"))
            other.choose("log")
            # A table has at most so many rows.
            assert other.rows("lines")[-1] == self.browser_log()[-1]
            other.complains_not()
        finally:
            other.end()

    def browser_log(self):
        self.browser.choose("log")
        return until("log", lambda: self.browser.rows("lines"))

    def a_traced_run_shows_calls_and_messages(self):
        record, saved = self.folder / "run.json", self.folder / "run.html"
        run = Run("-n", "4", "--trace", record, PROGRAMS / "known")
        tids, rounds, _ = run.team()
        run.end()
        json.loads(record.read_text())
        subprocess.run([PVM, "monitor", record, "--save", saved], check=True)
        self.browser.open(saved.as_uri())
        until("recorded", self.browser.status, lambda text: text.startswith("recorded run"))
        self.browser.choose("traffic")
        pairs = self.browser.script("return Object.fromEntries(page.record.pairs)")
        assert pairs == {f"{tids[0]} {tids[1]}": rounds, f"{tids[1]} {tids[0]}": rounds}, pairs
        shown = {row["from \\ to"]: row for row in self.browser.rows("Messages between tasks")}
        assert shown[tids[0]][tids[1]] == str(rounds), shown
        self.browser.choose("output")
        [line] = self.browser.rows("output")
        assert line["Line"].split()[:5] == ["team", *tids] and line["Task"] == tids[0] and line["Stream"] == "stdout", line
        self.browser.choose("space-time")
        calls = self.browser.script("return Object.fromEntries([...page.record.tracks].map(([tid, track]) => [tid, track.names.filter((name) => name === 'pvm_recv').length]))")
        assert calls[tids[0]] == rounds and calls[tids[2]] == 0, calls
        self.browser.complains_not()
        self.screenshots_of(["space-time", "traffic", "output"], "traced-")
        # The same by a monitor that reads the file.
        reader = Monitor(record)
        self.browser.open(reader.link())
        until("recorded", self.browser.status, lambda text: text.startswith("recorded run"))
        assert self.browser.script("return Object.fromEntries(page.record.pairs)") == pairs
        reader.end()

    def output_is_text_however_long(self):
        record, saved = self.folder / "output.json", self.folder / "output.html"
        hostile = r"<script>document.title=1</script><img src=x onerror=document.title=2>\033[31m"
        script = f"printf '{hostile}\\n'; head -c 1000000 /dev/zero | tr '\\0' x; echo"
        subprocess.run([PVM, "run", "--record", record, "/bin/sh", "-c", script], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([PVM, "monitor", record, "--save", saved], check=True)
        self.browser.open(saved.as_uri())
        until("recorded", self.browser.status, lambda text: text.startswith("recorded run"))
        self.browser.choose("output")
        texts = self.browser.script("return page.record.output.map((line) => line.text)")
        assert texts[0].startswith("<script>") and texts[0].endswith("\x1b[31m"), texts[0]
        assert texts[1:] == ["x" * 1000000], [len(text) for text in texts]
        assert self.browser.driver.title == "hpvm" and not self.browser.script("return document.querySelectorAll('main img, main script').length")
        self.browser.complains_not()

    def a_page_that_lacks_the_begin_says_so(self):
        self.browser.script("""
            page.record.reset();
            page.record.add({ name: "start", ph: "M", args: { microseconds: 0 } });
            page.record.add({ cat: "look", name: "state", ts: 7200e6, args: {} });
            render();""")
        assert "known since" in self.browser.status(), self.browser.status()

    def the_machine_may_halt_while_the_page_is_open(self):
        self.browser.open(self.monitor.link())
        until("live", self.browser.status, lambda text: text.startswith("live"))
        looks = self.browser.script("return page.record.looks.length")
        self.browser.complains_not()
        subprocess.run([PVM, "down"], check=True, stdout=subprocess.DEVNULL)
        until("ended", self.browser.status, lambda text: "the machine has ended" in text)
        self.browser.choose("log")
        assert self.browser.script("return page.record.looks.length") >= looks
        until("the end of pvm monitor", lambda: self.monitor.process.poll() is not None)
        assert self.monitor.process.returncode == 0, self.monitor.process.returncode

    def screenshots_of(self, views, prefix=""):
        if not SCREENSHOTS:
            return
        for theme in ["light", "dark"]:
            self.browser.script("setTheme(arguments[0])", theme)
            for view in views:
                self.browser.choose(view)
                self.browser.script("render()")
                time.sleep(0.5)
                self.browser.picture(f"{SCREENSHOTS}/{prefix}{view}-{theme}.png")
        self.browser.script("setTheme('light')")

    def screenshots(self):
        self.screenshots_of(VIEWS)

    def screenshots_of_a_farm(self):
        if not SCREENSHOTS:
            return
        record, saved = self.folder / "farm.json", self.folder / "farm.html"
        subprocess.run([PVM, "run", "--trace", record, PROGRAMS / "farm", "--workers", "8", "--samples", "1", "--size", "800x600",
                        "--output", self.folder / "farm.png"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([PVM, "monitor", record, "--save", saved], check=True)
        page, self.browser = self.browser, Browser(height=520)
        try:
            self.browser.open(saved.as_uri())
            self.screenshots_of(["space-time"], "farm-")
        finally:
            self.browser.end()
            self.browser = page

    CHECKS = [
        a_link_opens_the_page_once, waits, tasks, groups, traffic, hosts_come_and_go, space_time, utilization, screenshots,
        the_time_can_be_rewound, a_killed_task_goes, screenshots_of_a_farm,
        a_deadlock_is_named, names_are_text, a_reload_shows_the_same, the_page_ends_tasks_only_if_it_may,
        two_browsers_and_a_lost_connection, a_thousand_silent_connections_keep_nobody_out, one_page_too_many_is_told_so,
        a_saved_page_shows_the_same,
        a_traced_run_shows_calls_and_messages, output_is_text_however_long, a_page_that_lacks_the_begin_says_so,
        the_machine_may_halt_while_the_page_is_open,
    ]


def main():
    with tempfile.TemporaryDirectory(prefix="hpvm-monitor-") as folder:
        trial = Trial(pathlib.Path(folder))
        has_failed = False
        try:
            for check in Trial.CHECKS:
                try:
                    check(trial)
                    print(f"ok {check.__name__}", flush=True)
                except Exception as error:  # pylint: disable=broad-except
                    has_failed = True
                    print(f"FAILED {check.__name__}: {type(error).__name__}: {error}", flush=True)
        finally:
            for part in [trial.browser, trial.run, trial.monitor]:
                with contextlib.suppress(Exception):
                    part.end()
    return has_failed


if __name__ == "__main__":
    sys.exit(main())
