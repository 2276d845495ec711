#include "planner/simulate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "ir/text.h"
#include "planner/simulate_setup.h"

namespace meshwright::planner {
namespace {

struct DeviceState {
  double now_s = 0;
  size_t next = 0;  // instruction
  int in_flight = 0;
};

// Times of a channel's messages in order: when each has arrived, and when it was taken.
struct ChannelState {
  std::vector<double> arrived_s;
  std::vector<double> taken_s;
};

// The k-th RUN of a group that contains collectives: members begin and end together.
struct Meeting {
  size_t arrived = 0;
  double begin_s = 0;  // latest arrival so far
  double cost_s = 0;   // longest of the members' costs
  int first = -1;      // who came first, and with what
  const ir::Instruction* instruction = nullptr;
};

struct GroupState {
  std::vector<Meeting> meetings;
  std::vector<size_t> joined;  // per member: meetings it has arrived at
  std::vector<size_t> left;    // per member: meetings it has finished
};

// Each device advances as far as its list allows. Waiting is only for messages, for room in a
// channel and for a group, and each of these has one answer whoever asks first; so the order in
// which devices advance does not change any time.
class Replay {
 public:
  Replay(std::span<const ir::Program> programs, const SimulationCosts& costs, const SimSetup& setup)
      : programs_(programs),
        costs_(costs),
        setup_(setup),
        devices_(programs.size()),
        channels_(setup.channels.size()),
        groups_(setup.groups.size()) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].joined.resize(setup.groups[g].members.size());
      groups_[g].left.resize(setup.groups[g].members.size());
    }
    result_.busy_s.resize(programs.size());
    result_.idle_s.resize(programs.size());
    result_.in_flight_max.resize(programs.size());
    result_.sent_bytes.resize(programs.size());
  }

  Result<Simulation> Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t d = 0; d < programs_.size(); ++d) {
        while (devices_[d].next < programs_[d].instructions.size()) {
          MW_ASSIGN_OR_RETURN(const bool done, Step(d));
          if (!done) break;
          ++devices_[d].next;
          progress = true;
        }
      }
    }
    MW_TRY(CheckFinished());
    Summarize();
    return std::move(result_);
  }

 private:
  const ir::Instruction& Current(size_t d) const {
    return programs_[d].instructions[devices_[d].next];
  }

  // False when the device has to wait. Errors: members of a group meet with different work.
  Result<bool> Step(size_t d) {
    switch (Current(d).op) {
      case ir::Opcode::kRun:
        return StepRun(d);
      case ir::Opcode::kSend:
        return StepSend(d);
      case ir::Opcode::kRecv:
        return StepRecv(d);
      case ir::Opcode::kFree:
        break;
    }
    return true;
  }

  ChannelState& ChannelOf(size_t d) {
    const auto end = static_cast<size_t>(Current(d).channel.value());
    return channels_[static_cast<size_t>(setup_.channel_of[d][end])];
  }

  bool StepSend(size_t d) {
    const auto end = static_cast<size_t>(Current(d).channel.value());
    const SimChannel& channel = setup_.channels[static_cast<size_t>(setup_.channel_of[d][end])];
    ChannelState& state = ChannelOf(d);
    const size_t sent = state.arrived_s.size();
    const auto capacity = static_cast<size_t>(channel.capacity);
    if (sent >= capacity) {
      const size_t room = sent - capacity;  // the message that must have been taken
      if (state.taken_s.size() <= room) return false;
      devices_[d].now_s = std::max(devices_[d].now_s, state.taken_s[room]);
    }
    const int64_t bytes = MessageBytes(programs_[d], Current(d));
    result_.sent_bytes[d] += bytes;
    state.arrived_s.push_back(devices_[d].now_s + costs_.message_alpha_s +
                              static_cast<double>(bytes) * costs_.message_seconds_per_byte);
    return true;
  }

  bool StepRecv(size_t d) {
    ChannelState& state = ChannelOf(d);
    const size_t taken = state.taken_s.size();
    if (state.arrived_s.size() <= taken) return false;
    devices_[d].now_s = std::max(devices_[d].now_s, state.arrived_s[taken]);
    state.taken_s.push_back(devices_[d].now_s);
    return true;
  }

  Result<bool> StepRun(size_t d) {
    const auto index = static_cast<size_t>(Current(d).executable.value());
    const SimExecutable& executable = setup_.executables[d][index];
    double begin_s = devices_[d].now_s;
    double cost_s = executable.cost_s;
    if (executable.group >= 0) {
      MW_ASSIGN_OR_RETURN(const Meeting* const meeting, Meet(d, executable));
      if (meeting == nullptr) return false;
      begin_s = meeting->begin_s;
      cost_s = meeting->cost_s;
    }
    devices_[d].now_s = begin_s + cost_s;
    result_.busy_s[d] += cost_s;
    result_.spans.push_back({programs_[d].device.value(), static_cast<int>(devices_[d].next),
                             begin_s, devices_[d].now_s});
    CountInFlight(d, executable.piece);
    return true;
  }

  // The meeting once all have come; null while somebody is missing.
  Result<const Meeting*> Meet(size_t d, const SimExecutable& executable) {
    GroupState& group = groups_[static_cast<size_t>(executable.group)];
    const std::vector<int>& members = setup_.groups[static_cast<size_t>(executable.group)].members;
    const auto me = static_cast<size_t>(
        std::lower_bound(members.begin(), members.end(), static_cast<int>(d)) - members.begin());
    const size_t index = group.left[me];
    if (group.joined[me] == index) {
      MW_TRY(Join(group, index, d, executable));
      ++group.joined[me];
    }
    const Meeting& meeting = group.meetings[index];
    if (meeting.arrived < members.size()) return nullptr;
    ++group.left[me];
    return &meeting;
  }

  Status Join(GroupState& group, size_t index, size_t d, const SimExecutable& executable) {
    if (group.meetings.size() == index) group.meetings.emplace_back();
    Meeting& meeting = group.meetings[index];
    const ir::Instruction& instruction = Current(d);
    if (meeting.instruction == nullptr) {
      meeting.first = static_cast<int>(d);
      meeting.instruction = &instruction;
    } else if (NameOf(d, instruction) !=
               NameOf(static_cast<size_t>(meeting.first), *meeting.instruction)) {
      return InvalidArgument(
          fmt::format("simulate: device {} runs {} where device {} of the same group runs {}",
                      programs_[d].device.value(), NameOf(d, instruction),
                      programs_[static_cast<size_t>(meeting.first)].device.value(),
                      NameOf(static_cast<size_t>(meeting.first), *meeting.instruction)));
    }
    ++meeting.arrived;
    meeting.begin_s = std::max(meeting.begin_s, devices_[d].now_s);
    meeting.cost_s = std::max(meeting.cost_s, executable.cost_s);
    return OkStatus();
  }

  std::string NameOf(size_t d, const ir::Instruction& run) const {
    const auto index = static_cast<size_t>(run.executable.value());
    return fmt::format("{} mb={}", programs_[d].executables[index].graph->name, run.microbatch);
  }

  void CountInFlight(size_t d, const std::string& piece) {
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
    for (const DeviceState& device : devices_) {
      result_.makespan_s = std::max(result_.makespan_s, device.now_s);
    }
    for (size_t d = 0; d < programs_.size(); ++d) {
      result_.idle_s[d] = result_.makespan_s - result_.busy_s[d];
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
  Simulation result_;
};

}  // namespace

Result<Simulation> Simulate(std::span<const ir::Program> programs, const SimulationCosts& costs) {
  MW_CHECK(costs.run_s != nullptr) << "SimulationCosts::run_s is not set";
  MW_ASSIGN_OR_RETURN(const SimSetup setup, MakeSimSetup(programs, costs));
  return Replay(programs, costs, setup).Run();
}

std::string ExecutablePiece(const ir::Executable& executable) {
  const std::string& name = executable.graph->name;
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

}  // namespace meshwright::planner
