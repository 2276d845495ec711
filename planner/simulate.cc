#include "planner/simulate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "ir/text.h"
#include "planner/device_time.h"
#include "planner/shared_cores.h"
#include "planner/simulate_setup.h"

namespace meshwright::planner {
namespace {

struct DeviceState : DeviceTime {
  size_t next = 0;                                    // instruction
  double begin_s = 0;                                 // of the RUN that it is in
  std::array<double, ir::kSpaceCount> tier_free_s{};  // when its last copy of each memory is made
  std::map<SlotId, double> fetched_s;                 // copies that no RUN has waited for
  std::map<SlotId, double> written_s;  // when the last RUN that wrote a slot was done
  std::map<SlotId, double> given_s;    // of far slots, when the last OFFLOAD was
  double host_free_s = 0;              // when the host's last RUN is done
  int in_flight = 0;
  bool waits = false;  // for a message, or for room in a channel

  // Until the copies that a RUN reads are there; how long.
  double AwaitCopies(const ir::Instruction& run) {
    const double before_s = now_s;
    for (const SlotId id : run.inputs) {
      const auto fetched = fetched_s.find(id);
      if (fetched == fetched_s.end()) continue;
      now_s = std::max(now_s, fetched->second);
      fetched_s.erase(fetched);
    }
    return now_s - before_s;
  }

  // Beside what the device does, when what it reads has come.
  void RunOnHost(const ir::Instruction& run, double cost_s) {
    MW_CHECK(cost_s >= 0) << "the host runs for " << cost_s << " s";
    double ready_s = host_free_s;
    for (const SlotId id : run.inputs) {
      const auto given = given_s.find(id);
      if (given != given_s.end()) ready_s = std::max(ready_s, given->second);
    }
    host_free_s = ready_s + cost_s;
    for (const SlotId id : run.outputs) written_s[id] = host_free_s;
  }

  // What the step leaves to the next one, which begins at end_s.
  DeviceState After(double end_s) const {
    DeviceState after;
    for (size_t i = 0; i < tier_free_s.size(); ++i) {
      after.tier_free_s[i] = std::max(0.0, tier_free_s[i] - end_s);
    }
    after.host_free_s = std::max(0.0, host_free_s - end_s);
    for (const auto& [id, made_s] : written_s) {
      if (made_s > end_s) after.written_s[id] = made_s - end_s;
    }
    return after;
  }

  void Copy(const ir::Instruction& copy, ir::Space far, double seconds) {
    const bool fetches = copy.op == ir::Opcode::kPrefetch;
    const auto written = written_s.find(copy.inputs[0]);
    double ready_s = written != written_s.end() ? written->second : now_s;
    if (fetches) ready_s = std::max(ready_s, now_s);
    double& free_s = tier_free_s[static_cast<size_t>(far)];
    free_s = std::max(free_s, ready_s) + seconds;
    (fetches ? fetched_s : given_s)[copy.outputs[0]] = free_s;
  }
};

// Times of a channel's messages in order: when each has arrived, and when it was taken.
struct ChannelState {
  std::vector<double> arrived_s;
  std::vector<double> taken_s;
};

// The k-th RUN of a group that contains collectives: members begin and end together.
struct Meeting {
  size_t arrived = 0;
  size_t finished = 0;
  double begin_s = 0;  // latest arrival so far
  double end_s = 0;    // latest end so far
  int first = -1;      // who came first, and with what
  const ir::Instruction* instruction = nullptr;
};

struct GroupState {
  std::vector<Meeting> meetings;
  std::vector<size_t> joined;  // per member: meetings it has arrived at
};

enum class EventKind : uint8_t { kBegin, kEnd, kHostEnd };

// Something that happens at a time: a device's RUN begins or ends, or the next of the devices that
// share a host's cores is done, unless another plan of that host was made since (`stamp`).
struct Event {
  double time_s = 0;
  int64_t sequence = 0;  // ties: in the order in which they were made
  EventKind kind = EventKind::kBegin;
  size_t index = 0;  // of the device or host
  int64_t stamp = 0;
  bool operator>(const Event& other) const {
    return std::tie(time_s, sequence) > std::tie(other.time_s, other.sequence);
  }
};

struct HostState {
  SharedCores cores;
  int64_t stamp = 0;
};

size_t PlaceAmong(const std::vector<int>& members, size_t program) {
  const auto at = std::lower_bound(members.begin(), members.end(), static_cast<int>(program));
  return static_cast<size_t>(at - members.begin());
}

double LastCopy(const DeviceState& device) {
  return *std::max_element(device.tier_free_s.begin(), device.tier_free_s.end());
}

double LastDevice(const std::vector<DeviceState>& devices) {
  double last_s = 0;
  for (const DeviceState& device : devices) last_s = std::max(last_s, device.now_s);
  return last_s;
}

// Of a step behind one that has left them so.
std::vector<DeviceState> NextStep(const std::vector<DeviceState>& devices) {
  std::vector<DeviceState> next;
  for (const DeviceState& device : devices) next.push_back(device.After(LastDevice(devices)));
  return next;
}

bool GivesBack(const ir::Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const ir::Instruction& each) { return each.op == ir::Opcode::kOffload; });
}

// A device advances through its list up to a RUN or a wait; RUNs begin and end in the order of
// time, since they may slow one another. A RECV may take a device's clock ahead of that order; what
// it does there waits for messages, for room in a channel and for a group only, and each of these
// has one answer whoever asks first.
class Replay {
 public:
  Replay(std::span<const ir::Program> programs, const SimulationCosts& costs, const SimSetup& setup)
      : programs_(programs),
        costs_(costs),
        setup_(setup),
        devices_(programs.size()),
        channels_(setup.channels.size()),
        groups_(setup.groups.size()),
        host_of_(programs.size(), -1),
        threads_of_(programs.size(), 1) {
    for (const ir::Program& program : programs) gives_back_.push_back(GivesBack(program));
    for (size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].joined.resize(setup.groups[g].members.size());
    }
    result_.busy_s.resize(programs.size());
    result_.host_busy_s.resize(programs.size());
    result_.idle_s.resize(programs.size());
    result_.copy_wait_s.resize(programs.size());
    result_.in_flight_max.resize(programs.size());
    result_.sent_bytes.resize(programs.size());
    if (costs.cores) FindHosts();
  }

  // One per program; before Run() as they are when the step begins.
  std::vector<DeviceState>& devices() { return devices_; }

  Result<Simulation> Run() {
    for (size_t d = 0; d < programs_.size(); ++d) ready_.push_back(d);
    MW_TRY(AdvanceReady());
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Happen(event);
      MW_TRY(AdvanceReady());
    }
    MW_TRY(CheckFinished());
    Summarize();
    return std::move(result_);
  }

 private:
  void FindHosts() {
    std::map<int, int> index_of;
    for (size_t d = 0; d < programs_.size(); ++d) {
      const CoreUse use = costs_.cores(programs_[d].device.value());
      if (use.host < 0) continue;
      const auto [at, fresh] = index_of.emplace(use.host, static_cast<int>(hosts_.size()));
      if (fresh) hosts_.push_back({SharedCores(std::max(1, use.cores))});
      host_of_[d] = at->second;
      threads_of_[d] = std::max(1, use.threads);
    }
  }

  const ir::Instruction& Current(size_t d) const {
    return programs_[d].instructions[devices_[d].next];
  }
  const SimExecutable& CurrentExecutable(size_t d) const {
    return setup_.executables[d][Current(d).executable.index()];
  }

  void Push(double time_s, EventKind kind, size_t index, int64_t stamp = 0) {
    events_.push({time_s, sequence_++, kind, index, stamp});
  }

  Status AdvanceReady() {
    for (size_t i = 0; i < ready_.size(); ++i) MW_TRY(Advance(ready_[i]));
    ready_.clear();
    return OkStatus();
  }

  // Up to the next RUN or wait. Errors: members of a group meet with different work.
  Status Advance(size_t d) {
    for (; devices_[d].next < programs_[d].instructions.size(); ++devices_[d].next) {
      switch (Current(d).op) {
        case ir::Opcode::kRun:
          if (!ir::RunsOnHost(programs_[d], Current(d))) return Arrive(d);
          RunOnHost(d);
          break;
        case ir::Opcode::kSend:
          devices_[d].waits = !Send(d);
          if (devices_[d].waits) return OkStatus();
          break;
        case ir::Opcode::kRecv:
          devices_[d].waits = !Receive(d);
          if (devices_[d].waits) return OkStatus();
          break;
        case ir::Opcode::kPrefetch:
        case ir::Opcode::kOffload:
          CopyBetweenTiers(d);
          break;
        case ir::Opcode::kFree:
          break;
      }
    }
    return OkStatus();
  }

  void CopyBetweenTiers(size_t d) {
    const ir::Instruction& copy = Current(d);
    const bool fetches = copy.op == ir::Opcode::kPrefetch;
    const ir::Slot& far = programs_[d].slot(fetches ? copy.inputs[0] : copy.outputs[0]);
    double seconds = 0;
    if (costs_.tier) {
      const mesh::LinkCost link = costs_.tier(programs_[d].device.value(), far.space);
      seconds = link.alpha_s + static_cast<double>(far.type.bytes()) * link.seconds_per_byte;
    }
    devices_[d].Copy(copy, far.space, seconds);
  }

  void RunOnHost(size_t d) {
    const ir::Executable& executable = programs_[d].executables[Current(d).executable.index()];
    const double cost_s = costs_.host_run_s ? costs_.host_run_s(programs_[d], executable)
                                            : CurrentExecutable(d).cost_s;
    devices_[d].RunOnHost(Current(d), cost_s);
    result_.host_busy_s[d] += cost_s;
  }

  size_t ChannelIndex(size_t d) const {
    const auto end = Current(d).channel.index();
    MW_CHECK(end < setup_.channel_of[d].size()) << "channel " << end << " of program " << d;
    return static_cast<size_t>(setup_.channel_of[d][end]);
  }

  // A device that waits at the other end of a channel looks again.
  void Wake(size_t d, size_t channel, ir::Opcode op) {
    if (!devices_[d].waits || Current(d).op != op || ChannelIndex(d) != channel) return;
    devices_[d].waits = false;
    ready_.push_back(d);
  }

  // False when the channel is full.
  bool Send(size_t d) {
    const size_t index = ChannelIndex(d);
    const SimChannel& channel = setup_.channels[index];
    ChannelState& state = channels_[index];
    DeviceState& device = devices_[d];
    const size_t sent = state.arrived_s.size();
    const auto capacity = static_cast<size_t>(channel.capacity);
    if (sent >= capacity) {
      const size_t room = sent - capacity;  // the message that must have been taken
      if (state.taken_s.size() <= room) return false;
      device.now_s = std::max(device.now_s, state.taken_s[room]);
    }
    const int64_t bytes = MessageBytes(programs_[d], Current(d));
    result_.sent_bytes[d] += bytes;
    const auto receiver = static_cast<size_t>(channel.receiver);
    mesh::LinkCost link{0, 0};
    if (costs_.link) {
      link = costs_.link(programs_[d].device.value(), programs_[receiver].device.value());
    }
    state.arrived_s.push_back(device.Send(link, bytes));
    Wake(receiver, index, ir::Opcode::kRecv);
    return true;
  }

  // False when the message was not sent yet.
  bool Receive(size_t d) {
    const size_t index = ChannelIndex(d);
    ChannelState& state = channels_[index];
    const size_t taken = state.taken_s.size();
    if (state.arrived_s.size() <= taken) return false;
    devices_[d].now_s = std::max(devices_[d].now_s, state.arrived_s[taken]);
    state.taken_s.push_back(devices_[d].now_s);
    Wake(static_cast<size_t>(setup_.channels[index].sender), index, ir::Opcode::kSend);
    return true;
  }

  // At a RUN: it begins now, or when the last member of its group has come.
  Status Arrive(size_t d) {
    result_.copy_wait_s[d] += devices_[d].AwaitCopies(Current(d));
    const SimExecutable& executable = CurrentExecutable(d);
    if (executable.group < 0) {
      Push(devices_[d].now_s, EventKind::kBegin, d);
      return OkStatus();
    }
    GroupState& group = groups_[static_cast<size_t>(executable.group)];
    const std::vector<int>& members = setup_.groups[static_cast<size_t>(executable.group)].members;
    const size_t index = group.joined[PlaceAmong(members, d)]++;
    MW_TRY(Join(group, index, d));
    const Meeting& meeting = group.meetings[index];
    if (meeting.arrived < members.size()) return OkStatus();
    for (int member : members) {
      Push(meeting.begin_s, EventKind::kBegin, static_cast<size_t>(member));
    }
    return OkStatus();
  }

  Status Join(GroupState& group, size_t index, size_t d) {
    MW_CHECK(index <= group.meetings.size()) << "program " << d << " skips a meeting of its group";
    if (group.meetings.size() == index) group.meetings.emplace_back();
    Meeting& meeting = group.meetings[index];
    const ir::Instruction& instruction = Current(d);
    if (meeting.instruction == nullptr) {
      meeting.first = static_cast<int>(d);
      meeting.instruction = &instruction;
    } else if (!AreAlike(d, instruction, static_cast<size_t>(meeting.first),
                         *meeting.instruction)) {
      return InvalidArgument(
          fmt::format("simulate: device {} runs {} where device {} of the same group runs {}",
                      programs_[d].device.value(), NameOf(d, instruction),
                      programs_[static_cast<size_t>(meeting.first)].device.value(),
                      NameOf(static_cast<size_t>(meeting.first), *meeting.instruction)));
    }
    ++meeting.arrived;
    meeting.begin_s = std::max(meeting.begin_s, devices_[d].now_s);
    return OkStatus();
  }

  const std::string& GraphNameOf(size_t d, const ir::Instruction& run) const {
    return programs_[d].executables[run.executable.index()].graph->name;
  }
  bool AreAlike(size_t a, const ir::Instruction& run, size_t b,
                const ir::Instruction& other) const {
    return run.microbatch == other.microbatch && GraphNameOf(a, run) == GraphNameOf(b, other);
  }
  std::string NameOf(size_t d, const ir::Instruction& run) const {
    return fmt::format("{} mb={}", GraphNameOf(d, run), run.microbatch);
  }

  void Happen(const Event& event) {
    switch (event.kind) {
      case EventKind::kBegin:
        Begin(event.index, event.time_s);
        break;
      case EventKind::kEnd:
        End(event.index, event.time_s);
        break;
      case EventKind::kHostEnd: {
        HostState& host = hosts_[event.index];
        if (event.stamp != host.stamp) break;
        for (const size_t d : host.cores.Finish(event.time_s)) End(d, event.time_s);
        PlanEnd(event.index);
        break;
      }
    }
  }

  void Begin(size_t d, double time_s) {
    const double cost_s = CurrentExecutable(d).cost_s;
    devices_[d].begin_s = time_s;
    if (host_of_[d] < 0) {
      Push(time_s + cost_s, EventKind::kEnd, d);
      return;
    }
    const auto host = static_cast<size_t>(host_of_[d]);
    hosts_[host].cores.Begin(d, time_s, cost_s, threads_of_[d]);
    PlanEnd(host);
  }

  void PlanEnd(size_t host) {
    const std::optional<double> end_s = hosts_[host].cores.NextEnd();
    ++hosts_[host].stamp;
    if (end_s) Push(*end_s, EventKind::kHostEnd, host, hosts_[host].stamp);
  }

  // The device's own part is done; so is its RUN, when the whole group's is.
  void End(size_t d, double time_s) {
    const int group_index = CurrentExecutable(d).group;
    if (group_index < 0) {
      Complete(d, time_s);
      return;
    }
    GroupState& group = groups_[static_cast<size_t>(group_index)];
    const std::vector<int>& members = setup_.groups[static_cast<size_t>(group_index)].members;
    const size_t joined = group.joined[PlaceAmong(members, d)];
    MW_CHECK(joined > 0) << "program " << d << " leaves a group that it has not met";
    Meeting& meeting = group.meetings[joined - 1];
    meeting.end_s = std::max(meeting.end_s, time_s);
    if (++meeting.finished < members.size()) return;
    for (int member : members) Complete(static_cast<size_t>(member), meeting.end_s);
  }

  void Complete(size_t d, double time_s) {
    MW_CHECK(time_s >= devices_[d].begin_s) << "program " << d << " ends before it begins";
    DeviceState& device = devices_[d];
    result_.busy_s[d] += time_s - device.begin_s;
    result_.spans.push_back(
        {programs_[d].device.value(), static_cast<int>(device.next), device.begin_s, time_s});
    CountInFlight(d, CurrentExecutable(d).piece);
    device.now_s = time_s;
    if (gives_back_[d]) {
      for (const SlotId id : Current(d).outputs) device.written_s[id] = time_s;
    }
    ++device.next;
    ready_.push_back(d);
  }

  // Once for all parts that a piece is cut into.
  void CountInFlight(size_t d, const std::string& piece) {
    if (piece.find('+') != std::string::npos) return;
    if (piece.starts_with('f')) {
      result_.in_flight_max[d] = std::max(result_.in_flight_max[d], ++devices_[d].in_flight);
    } else if (piece.starts_with('b')) {
      --devices_[d].in_flight;
    }
  }

  Status CheckFinished() const {
    constexpr size_t kNamed = 8;
    std::vector<std::string> waiting;
    size_t more = 0;
    for (size_t d = 0; d < programs_.size(); ++d) {
      if (devices_[d].next == programs_[d].instructions.size()) continue;
      if (waiting.size() == kNamed) {
        ++more;
        continue;
      }
      waiting.push_back(fmt::format("device {} waits at instruction {} ({})",
                                    programs_[d].device.value(), devices_[d].next,
                                    ir::FormatInstruction(programs_[d], Current(d))));
    }
    if (waiting.empty()) return OkStatus();
    return InvalidArgument(fmt::format("deadlock: {}{}", fmt::join(waiting, "; "),
                                       more > 0 ? fmt::format("; and {} more", more) : ""));
  }

  void Summarize() {
    const double devices_s = LastDevice(devices_);
    result_.makespan_s = devices_s;
    for (const DeviceState& device : devices_) {
      if (costs_.steps_follow) break;
      result_.makespan_s = std::max({result_.makespan_s, LastCopy(device), device.host_free_s});
    }
    for (size_t d = 0; d < programs_.size(); ++d) {
      result_.idle_s[d] = result_.makespan_s - result_.busy_s[d];
      result_.copy_wait_s[d] += result_.makespan_s - devices_s;
    }
    std::sort(result_.spans.begin(), result_.spans.end(), [](const Span& a, const Span& b) {
      return std::tie(a.begin_s, a.device, a.instruction) <
             std::tie(b.begin_s, b.device, b.instruction);
    });
  }

  std::span<const ir::Program> programs_;
  const SimulationCosts& costs_;
  const SimSetup& setup_;
  std::vector<DeviceState> devices_;
  std::vector<ChannelState> channels_;
  std::vector<GroupState> groups_;
  std::vector<HostState> hosts_;
  std::vector<int> host_of_;      // per program: of hosts_; -1: cores of its own
  std::vector<int> threads_of_;   // per program
  std::vector<bool> gives_back_;  // per program: it has an OFFLOAD
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t sequence_ = 0;
  std::vector<size_t> ready_;  // devices that may advance
  Simulation result_;
};

}  // namespace

Result<Simulation> Simulate(std::span<const ir::Program> programs, const SimulationCosts& costs) {
  MW_CHECK(costs.run_s != nullptr) << "SimulationCosts::run_s is not set";
  MW_ASSIGN_OR_RETURN(const SimSetup setup, MakeSimSetup(programs, costs));
  Replay first(programs, costs, setup);
  MW_ASSIGN_OR_RETURN(Simulation answer, first.Run());
  if (!costs.steps_follow || std::none_of(programs.begin(), programs.end(), GivesBack)) {
    return answer;
  }
  // Steps settle soon: what a link is behind with delays the next step by as much.
  constexpr int kSteps = 4;
  constexpr double kSettled = 1e-3;
  std::vector<DeviceState> next = NextStep(first.devices());
  for (int step = 1; step < kSteps; ++step) {
    const double before_s = answer.makespan_s;
    Replay replay(programs, costs, setup);
    replay.devices() = std::move(next);
    MW_ASSIGN_OR_RETURN(answer, replay.Run());
    if (std::abs(answer.makespan_s - before_s) <= kSettled * before_s) break;
    next = NextStep(replay.devices());
  }
  return answer;
}

std::string ExecutablePiece(const ir::Executable& executable) {
  const std::string& name = executable.graph->name;
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

std::string_view PieceCategory(std::string_view piece) {
  if (piece.starts_with('f')) return "forward";
  if (piece.starts_with('b')) return "backward";
  return piece.starts_with('w') ? "weight gradient" : "update";
}

}  // namespace meshwright::planner
