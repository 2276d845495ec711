"""Hosts: network namespaces with cables to one switch, or this machine itself. Nothing has a name, so nothing is left
behind: a namespace ends with the process that holds it, which ends with us."""
import ctypes
import signal
import subprocess


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class OneMachine:
    """All processes on this machine, over loopback; there is no network to cut."""

    can_cut = False

    def address(self, _host):
        return "127.0.0.1"

    def on(self, _host, words):
        return words

    def close(self):
        pass


class Namespaces:
    """Host 0 .. count - 1 at 10.77.0.1 and so on. Needs root, `ip` and `nsenter`."""

    can_cut = True

    def __init__(self, count):
        self._holders = []
        try:
            self._switch = self._hold()
            self._ip(self._switch, "link", "add", "switch", "type", "bridge")
            self._ip(self._switch, "link", "set", "switch", "up")
            self._hosts = [self._plug(host) for host in range(count)]
        except (OSError, subprocess.SubprocessError):
            self.close()
            raise

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def on(self, host, words):
        return ["nsenter", "-t", str(self._hosts[host]), "-n", *words]

    def cut(self, host):
        self._ip(self._switch, "link", "set", f"port{host}", "down")

    def mend(self, host):
        self._ip(self._switch, "link", "set", f"port{host}", "up")

    def close(self):
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _hold(self):
        holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE,
                                  preexec_fn=die_with_parent)
        self._holders.append(holder)
        holder.stdout.readline()
        return holder.pid

    def _plug(self, host):
        pid = self._hold()
        self._ip(self._switch, "link", "add", f"port{host}", "type", "veth", "peer", "name", "cable", "netns", str(pid))
        self._ip(self._switch, "link", "set", f"port{host}", "master", "switch", "up")
        self._ip(pid, "address", "add", f"{self.address(host)}/24", "dev", "cable")
        for device in ("lo", "cable"):
            self._ip(pid, "link", "set", device, "up")
        return pid

    @staticmethod
    def _ip(pid, *words):
        subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", *words], check=True, capture_output=True)
