#include "tests/e2e/leftovers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

namespace meshwright::testing {
namespace {

namespace fs = std::filesystem;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  for (std::string& word : Split(line, ' ')) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

// Whether a whole number in the text is one of `numbers`: "a-12.b" has 12.
bool HasNumberOf(const std::set<std::string>& numbers, const std::string& text) {
  constexpr const char* kDigits = "0123456789";
  for (size_t begin = text.find_first_of(kDigits); begin != std::string::npos;) {
    const size_t end = text.find_first_not_of(kDigits, begin);
    if (numbers.count(text.substr(begin, end - begin)) != 0) return true;
    begin = text.find_first_of(kDigits, end);
  }
  return false;
}

// Names in a folder; none when it is not there (any more).
std::set<std::string> Names(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.insert(it->path().filename().string());
  }
  return names;
}

std::vector<ProcessEntry> AllProcesses() {
  std::vector<ProcessEntry> processes;
  for (const std::string& name : Names("/proc")) {
    if (!IsNumber(name)) continue;
    const auto stat = ReadFile("/proc/" + name + "/stat");
    if (!stat.has_value()) continue;
    // "pid (name) state parent ...": the name may hold anything, also ") ".
    const size_t open = stat->find('(');
    const size_t close = stat->rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    const std::vector<std::string> fields = Words(std::string_view(*stat).substr(close + 1));
    if (fields.size() < 2) continue;
    processes.push_back({std::stoi(name), std::stoi(fields[1]), fields[0] == "Z",
                         stat->substr(open + 1, close - open - 1)});
  }
  return processes;
}

// "0100007F:1E14" -> "127.0.0.1:7700", also when IPv6 carries it; other addresses stay hexadecimal.
std::string AddressText(const std::string& hex) {
  constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  const size_t colon = hex.find(':');
  unsigned port = 0;
  std::from_chars(hex.data() + colon + 1, hex.data() + hex.size(), port, 16);
  const size_t begin = hex.rfind(kMapped, 0) == 0 ? kMapped.size() : 0;
  if (colon - begin != 8) return fmt::format("{}:{}", hex.substr(0, colon), port);
  unsigned address = 0;
  std::from_chars(hex.data() + begin, hex.data() + colon, address, 16);
  return fmt::format("{}.{}.{}.{}:{}", address & 255, address >> 8 & 255, address >> 16 & 255,
                     address >> 24, port);
}

struct Socket {
  bool listening = false;
  std::string text;
};

// Sockets of the network namespace of `pid` by inode.
std::map<std::string, Socket> SocketTable(pid_t pid) {
  constexpr const char* kListen = "0A";
  constexpr const char* kUnixListening = "00010000";
  std::map<std::string, Socket> table;
  for (const char* family : {"tcp", "tcp6"}) {
    const auto text = ReadFile(fmt::format("/proc/{}/net/{}", pid, family));
    for (const std::string& line : Split(text.value_or(""), '\n')) {
      const std::vector<std::string> words = Words(line);
      if (words.size() < 10 || words[1].find(':') == std::string::npos) continue;
      const std::string local = AddressText(words[1]);
      table[words[9]] = words[3] == kListen ? Socket{true, "tcp " + local}
                                            : Socket{false, local + " -> " + AddressText(words[2])};
    }
  }
  const auto text = ReadFile(fmt::format("/proc/{}/net/unix", pid));
  for (const std::string& line : Split(text.value_or(""), '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() < 7 || words[3] != kUnixListening) continue;
    table[words[6]] = {true, "unix " + (words.size() > 7 ? words[7] : std::string("unnamed"))};
  }
  return table;
}

constexpr std::string_view kSocket = "socket:[";
constexpr std::string_view kMemory = "/memfd:meshwright";
constexpr std::string_view kUnnamed = " (deleted)";  // what links say of every memfd

// Calls `use(kind, inode, name)` for each socket and memfd of ours that the process has open or
// mapped.
template <typename Use>
void ForEachObject(pid_t pid, Use use) {
  const std::string proc = fmt::format("/proc/{}", pid);
  for (const std::string& fd : Names(proc + "/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(proc + "/fd/" + fd, error).string();
    if (error) continue;
    if (target.rfind(kSocket, 0) == 0) {
      use(kSocket, target.substr(kSocket.size(), target.size() - kSocket.size() - 1), target);
    } else if (target.rfind(kMemory, 0) == 0) {
      // Of an executor that waits for a mesh: there are no bytes yet.
      const bool of_snapshots = target.find("meshwright-snapshot") != std::string::npos;
      if (of_snapshots && fs::file_size(proc + "/fd/" + fd, error) == 0) continue;
      const auto info = ReadFile(proc + "/fdinfo/" + fd);
      const size_t at = info.value_or("").find("ino:");
      if (at == std::string::npos) continue;
      const std::string name = target.substr(0, target.find(kUnnamed));  // as mappings have it
      use(kMemory, std::string(Trim(Split(info->substr(at + 4), '\n')[0])), name);
    }
  }
  const auto maps = ReadFile(proc + "/maps");
  for (const std::string& line : Split(maps.value_or(""), '\n')) {
    if (line.find(kMemory) == std::string::npos) continue;
    const std::vector<std::string> words = Words(line);  // range, mode, offset, device, inode, name
    if (words.size() > 5) use(kMemory, words[4], words[5]);
  }
}

std::string ObjectId(std::string_view kind, const std::string& inode) {
  return fmt::format("{}{}", kind == kSocket ? "socket " : "shared memory ", inode);
}

std::set<std::string> ObjectsOf(pid_t pid) {
  std::set<std::string> objects;
  ForEachObject(pid, [&](std::string_view kind, const std::string& inode, const std::string&) {
    objects.insert(ObjectId(kind, inode));
  });
  return objects;
}

}  // namespace

bool WaitUntil(const std::function<bool()>& condition, int64_t timeout_ms) {
  const Deadline deadline = Deadline::After(timeout_ms);
  while (!condition()) {
    if (deadline.expired()) return false;
    (void)::poll(nullptr, 0, 10);  // these conditions have no event to wait for
  }
  return true;
}

std::vector<ProcessEntry> Descendants() {
  const std::vector<ProcessEntry> all = AllProcesses();
  std::set<pid_t> family = {::getpid()};
  for (size_t before = 0; before != family.size();) {
    before = family.size();
    for (const ProcessEntry& process : all) {
      if (family.count(process.parent) != 0) family.insert(process.pid);
    }
  }
  family.erase(::getpid());
  std::vector<ProcessEntry> result;
  std::copy_if(all.begin(), all.end(), std::back_inserter(result),
               [&](const ProcessEntry& process) { return family.count(process.pid) != 0; });
  return result;
}

Holdings HoldingsOf(pid_t pid) {
  Holdings holdings;
  const std::map<std::string, Socket> sockets = SocketTable(pid);
  ForEachObject(pid, [&](std::string_view kind, const std::string& inode, const std::string& name) {
    if (kind == kMemory) {
      holdings.shared_memory.insert(fmt::format("{} {}", name.substr(1), inode));
      return;
    }
    const auto socket = sockets.find(inode);
    if (socket == sockets.end()) return;
    (socket->second.listening ? holdings.listening : holdings.connections)
        .insert(socket->second.text);
  });
  return holdings;
}

Holdings HoldingsOfWorker(pid_t pid) {
  Holdings all = HoldingsOf(pid);
  for (const ProcessEntry& process : Descendants()) {
    if (process.parent != pid || process.name != "mw-executor") continue;
    Holdings held = HoldingsOf(process.pid);
    all.listening.merge(held.listening);
    all.connections.merge(held.connections);
    all.shared_memory.merge(held.shared_memory);
  }
  std::erase_if(all.shared_memory, [](const std::string& memory) {
    return memory.find("mw-executor-record") != std::string::npos;
  });
  return all;
}

Leftovers::Leftovers() : shm_before_(Names("/dev/shm")), pids_({std::to_string(::getpid())}) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Leftovers::~Leftovers() {
  for (const ProcessEntry& process : Descendants()) ::kill(process.pid, SIGKILL);
  WaitUntil(
      [] {
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        return Descendants().empty();
      },
      5'000);
}

void Leftovers::Note() {
  for (const ProcessEntry& process : Descendants()) {
    const std::set<std::string> objects = ObjectsOf(process.pid);
    noted_.insert(objects.begin(), objects.end());
    pids_.insert(std::to_string(process.pid));
  }
}

std::string Leftovers::Find(int64_t timeout_ms) {
  std::string left;
  WaitUntil(
      [&] {
        left = Look();
        return left.empty();
      },
      timeout_ms);
  return left;
}

std::string Leftovers::Look() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  std::string left;
  for (const ProcessEntry& process : Descendants()) {
    left += fmt::format("process {} ({})\n", process.pid, process.name);
  }
  for (const ProcessEntry& process : AllProcesses()) {
    for (const std::string& object : ObjectsOf(process.pid)) {
      if (noted_.count(object) == 0) continue;
      left += fmt::format("{} in process {} ({})\n", object, process.pid, process.name);
    }
  }
  for (const auto& [inode, socket] : SocketTable(::getpid())) {
    if (noted_.count(ObjectId(kSocket, inode)) != 0) left += socket.text + "\n";
  }
  for (const std::string& name : Names("/dev/shm")) {
    if (shm_before_.count(name) == 0 && HasNumberOf(pids_, name)) left += "/dev/shm/" + name + "\n";
  }
  return left;
}

}  // namespace meshwright::testing
