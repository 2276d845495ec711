#include "ir/verify_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace meshwright::ir {
namespace {

// Behind every RUN: a persistent slot that was received is not used again.
constexpr AccessKey kReceivedKey{static_cast<int>(Cadence::kOnceAfter) + 1, 0, 0};

bool Overlap(const Box& a, const Box& b) {
  MW_CHECK(a.size.size() == b.size.size())
      << "boxes of ranks " << a.size.size() << " and " << b.size.size();
  for (size_t i = 0; i < a.size.size(); ++i) {
    if (a.offset[i] >= b.offset[i] + b.size[i] || b.offset[i] >= a.offset[i] + a.size[i])
      return false;
  }
  return true;
}

int64_t Elements(const Box& box) {
  int64_t n = 1;
  for (int64_t size : box.size) n *= size;
  return n;
}

}  // namespace

SlotStates::SlotStates(const Program& program,
                       const std::vector<std::shared_ptr<const ExecutableFacts>>& facts)
    : p_(program), facts_(facts), states_(program.slots.size()) {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!p_.slots[i].persistent) continue;
    states_[i].life = Life::kLive;
    states_[i].content.name = p_.slots[i].name;
  }
}

AccessKey SlotStates::KeyOf(const Instruction& run) const {
  return {static_cast<int>(FactsOf(run).cadence), run.microbatch, run.executable.value()};
}

Status SlotStates::RequireLive(SlotId id) const {
  const State& state = states_[id.index()];
  if (state.life == Life::kLive) {
    if (p_.slot(id).space != Space::kDevice && state.held_version != state.version) {
      return InvalidArgument(
          fmt::format("s{} does not hold yet what was written to a copy of it: OFFLOAD that first",
                      id.value()));
    }
    if (!state.home.valid() || state.version == states_[state.home.index()].version) {
      return OkStatus();
    }
    return InvalidArgument(fmt::format("s{} is an old copy of s{}, which another copy has changed",
                                       id.value(), state.home.value()));
  }
  if (state.life == Life::kOverwritten) {
    return InvalidArgument(fmt::format("s{} was overwritten by an output", id.value()));
  }
  if (state.life == Life::kDead) {
    return InvalidArgument(
        fmt::format("s{} is not alive: used before definition or after FREE", id.value()));
  }
  return InvalidArgument(fmt::format("s{} is not covered: its tiles fill {} of {} elements",
                                     id.value(), state.filled_elements,
                                     p_.slot(id).type.elements()));
}

Status SlotStates::CheckInput(const Instruction& run, size_t input) {
  const SlotId id = run.inputs[input];
  MW_TRY(RequireLive(id));
  State& state = At(id);
  const ExecutableFacts& facts = FactsOf(run);
  const int microbatch = state.content.microbatch;
  if (RunsPerMicrobatch(facts.cadence) && microbatch >= 0 && microbatch != run.microbatch) {
    return InvalidArgument(fmt::format("s{} holds microbatch {}", id.value(), microbatch));
  }
  if (!RunsPerMicrobatch(facts.cadence) && microbatch >= 0 && p_.microbatches > 1) {
    return InvalidArgument(fmt::format(
        "s{} {}holds microbatch {}: accumulate {}", id.value(),
        state.received ? "was received and " : "", microbatch,
        state.received ? "before the SEND" : "what the step reads over its microbatches"));
  }
  if (!state.received) return OkStatus();
  MW_CHECK(input < facts.input_names.size()) << facts.graph->name << " has no input " << input;
  if (facts.input_names[input] == state.content.name) return OkStatus();
  return InvalidArgument(fmt::format(
      "s{} was received as \"{}\" and is read as \"{}\": a value that crosses meshes has one name",
      id.value(), state.content.name, facts.input_names[input]));
}

Status SlotStates::BeginRun(const Instruction& run) {
  const AccessKey key = KeyOf(run);
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    MW_TRY(CheckInput(run, i));
    const SlotId id = run.inputs[i];
    if (std::find(run.outputs.begin(), run.outputs.end(), id) != run.outputs.end()) continue;
    State& state = At(id);
    if (state.last_write >= key) {
      return InvalidArgument(
          fmt::format("s{} was already updated in place by a later part of the step", id.value()));
    }
    state.last_access = std::max(state.last_access, key);
  }
  return OkStatus();
}

Status SlotStates::Replace(SlotId id, const AccessKey& key, std::string_view name) {
  State& state = At(id);
  if (state.sent) {
    return InvalidArgument(fmt::format("s{} was sent, so its content is final", id.value()));
  }
  if (state.last_access >= key) {
    return InvalidArgument(
        fmt::format("s{} was already used by a later part of the step: in-place updates follow "
                    "cadence, microbatch and "
                    "executable number",
                    id.value()));
  }
  state.last_access = key;
  state.last_write = key;
  state.received = false;
  if (!p_.slot(id).persistent) state.content.name = name;
  return OkStatus();
}

// Every place in which the run reads the slot comes before the output is first written.
bool SlotStates::MayOverwrite(const Instruction& run, size_t output, SlotId other) const {
  const OperandTimes& times = FactsOf(run).times;
  bool input = false;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    if (run.inputs[i] != other) continue;
    if (times.last_read[i] >= times.first_write[output]) return false;
    input = true;
  }
  return input && std::find(run.outputs.begin(), run.outputs.end(), other) == run.outputs.end();
}

Status SlotStates::Occupy(SlotId id, const Instruction* run, size_t output) {
  const Slot& slot = p_.slot(id);
  const int64_t begin = slot.offset_bytes;
  const int64_t end = begin + slot.type.bytes();
  const bool on_device = slot.space == Space::kDevice;
  std::map<int64_t, SlotId>& live = live_by_offset_[static_cast<size_t>(slot.space)];
  if (on_device && begin < p_.workspace_offset + p_.workspace_bytes && p_.workspace_offset < end &&
      p_.workspace_bytes > 0) {
    return InvalidArgument(fmt::format("s{} overlaps the workspace", id.value()));
  }
  auto it = live.lower_bound(begin);
  if (it != live.begin()) {
    const Slot& before = p_.slot(std::prev(it)->second);
    if (before.offset_bytes + before.type.bytes() > begin) --it;
  }
  while (it != live.end() && it->first < end) {
    const SlotId other = it->second;
    if (run == nullptr || !MayOverwrite(*run, output, other)) {
      return InvalidArgument(
          fmt::format("s{} and s{} are alive in the same bytes", id.value(), other.value()));
    }
    At(other).life = Life::kOverwritten;
    it = live.erase(it);
  }
  MW_CHECK(!live.contains(begin)) << "s" << id << " lies where another slot begins";
  live.emplace(begin, id);
  return OkStatus();
}

Status SlotStates::EndRun(const Instruction& run) {
  const ExecutableFacts& facts = FactsOf(run);
  const AccessKey key = KeyOf(run);
  for (size_t o = 0; o < run.outputs.size(); ++o) {
    const SlotId id = run.outputs[o];
    MW_CHECK(o < facts.graph->outputs.size()) << facts.graph->name << " has no output " << o;
    const std::string_view name = facts.graph->outputs[o].name;
    State& state = At(id);
    const bool donated = std::find(run.inputs.begin(), run.inputs.end(), id) != run.inputs.end();
    if (donated || p_.slot(id).persistent) {
      MW_TRY(RequireLive(id));
      MW_TRY(Replace(id, key, name));
      MakeVersion(id);
      continue;
    }
    if (state.life != Life::kDead) {
      return InvalidArgument(fmt::format("s{} is alive and would be overwritten", id.value()));
    }
    MW_TRY(Occupy(id, &run, o));
    state = State();
    state.life = Life::kLive;
    state.content.name = name;
    state.content.microbatch = RunsPerMicrobatch(facts.cadence) ? run.microbatch : -1;
    state.last_access = key;
    state.last_write = key;
  }
  return OkStatus();
}

Status SlotStates::Send(const Instruction& send, Content& content) {
  MW_TRY(RequireLive(send.slot));
  State& state = At(send.slot);
  state.sent = true;
  content = state.content;
  return OkStatus();
}

Status SlotStates::AddTile(SlotId id, const Box& box) {
  State& state = At(id);
  for (const Box& tile : state.tiles) {
    if (Overlap(tile, box)) {
      return InvalidArgument(
          fmt::format("the tile overlaps one that s{} has received", id.value()));
    }
  }
  state.tiles.push_back(box);
  state.filled_elements += Elements(box);
  MW_CHECK(state.filled_elements <= p_.slot(id).type.elements())
      << "tiles that do not overlap fill " << state.filled_elements << " elements of s" << id;
  if (state.filled_elements == p_.slot(id).type.elements()) {
    state.life = Life::kLive;
    state.tiles.clear();
  }
  return OkStatus();
}

Status SlotStates::Receive(const Instruction& recv, const Content& content) {
  const SlotId id = recv.slot;
  const Slot& slot = p_.slot(id);
  State& state = At(id);
  MW_ASSIGN_OR_RETURN(const Box box, ResolveBox(recv.box, slot.type.dims));
  if (state.life == Life::kFilling) {
    if (state.content == content) return AddTile(id, box);
    return InvalidArgument(fmt::format(
        "s{} receives tiles of \"{}\" microbatch {} and of \"{}\" microbatch {}", id.value(),
        state.content.name, state.content.microbatch, content.name, content.microbatch));
  }
  if (state.life == Life::kLive && (!slot.persistent || state.received || state.sent)) {
    return InvalidArgument(fmt::format("s{} is alive and would be overwritten", id.value()));
  }
  if (slot.persistent && content.name != slot.name) {
    return InvalidArgument(fmt::format(
        "persistent slot \"{}\" receives \"{}\": a value that crosses meshes has one name",
        slot.name, content.name));
  }
  if (!slot.persistent) {
    MW_TRY(Occupy(id));
    state = State();
  } else {
    state.last_access = kReceivedKey;
    state.last_write = kReceivedKey;
  }
  state.life = Life::kFilling;
  state.received = true;
  state.content = content;
  return AddTile(id, box);
}

void SlotStates::MakeVersion(SlotId id) {
  State& state = At(id);
  if (state.home.valid()) {
    state.version = ++At(state.home).version;
  } else if (p_.slot(id).space == Space::kHost) {  // the host wrote it where it lies
    state.held_version = ++state.version;
  }
}

Status SlotStates::Prefetch(const Instruction& copy) {
  MW_CHECK(copy.inputs.size() == 1 && copy.outputs.size() == 1) << "a copy of one slot to one slot";
  const SlotId home = copy.inputs[0];
  const SlotId id = copy.outputs[0];
  MW_TRY(RequireLive(home));
  const State& host = At(home);
  if (At(id).life != Life::kDead) {
    return InvalidArgument(fmt::format("s{} is alive and would be overwritten", id.value()));
  }
  MW_TRY(Occupy(id));
  State state = host;
  state.home = home;
  At(id) = std::move(state);
  return OkStatus();
}

Status SlotStates::Offload(const Instruction& copy) {
  MW_CHECK(copy.inputs.size() == 1 && copy.outputs.size() == 1) << "a copy of one slot to one slot";
  const SlotId id = copy.inputs[0];
  const SlotId home = copy.outputs[0];
  MW_TRY(RequireLive(id));
  State& state = At(id);
  State& host = At(home);
  const bool begins = !p_.slot(home).persistent && host.life == Life::kDead;
  const std::string_view name = p_.slot(home).persistent ? p_.slot(home).name
                                : begins                 ? state.content.name
                                                         : host.content.name;
  if (state.content.name != name || (state.home.valid() && state.home != home)) {
    return InvalidArgument(fmt::format("s{} holds \"{}\", s{} is \"{}\"", id.value(),
                                       state.content.name, home.value(), name));
  }
  if (begins) MW_TRY(Begin(home, state));
  if (!state.home.valid()) {  // made by a RUN
    if (host.held_version != host.version) {
      return InvalidArgument(
          fmt::format("s{} has another copy that was written and not given back", home.value()));
    }
    state.home = home;
    MakeVersion(id);
  }
  host.held_version = state.version;
  host.last_access = state.last_access;
  host.last_write = state.last_write;
  return OkStatus();
}

Status SlotStates::Begin(SlotId far, const State& copy) {
  MW_CHECK(!copy.home.valid()) << "a copy of s" << copy.home << " is given to s" << far;
  MW_TRY(Occupy(far));
  State& state = At(far);
  state = State();
  state.life = Life::kLive;
  state.content = copy.content;
  return OkStatus();
}

void SlotStates::Detach(SlotId far) {
  const State& home = At(far);
  for (State& copy : states_) {
    if (copy.home == far && copy.version == home.version) copy.home = SlotId();
  }
}

Status SlotStates::Free(const Instruction& free) {
  for (SlotId id : free.inputs) {
    const State& copy = At(id);
    if (copy.home.valid()) {
      const State& host = At(copy.home);
      if (copy.version == host.version && host.held_version != host.version) {
        return InvalidArgument(
            fmt::format("s{} was written and ends before it is given back to s{}: OFFLOAD it",
                        id.value(), copy.home.value()));
      }
    }
    const Space space = p_.slot(id).space;
    if (space != Space::kDevice) Detach(id);
    if (copy.life == Life::kLive) {
      live_by_offset_[static_cast<size_t>(space)].erase(p_.slot(id).offset_bytes);
    } else if (copy.life != Life::kOverwritten) {
      MW_TRY(RequireLive(id));
    }
    At(id) = State();
  }
  return OkStatus();
}

Status SlotStates::CheckEnd() const {
  std::vector<bool> reported(states_.size(), false);
  for (const Program::Report& report : p_.reports) {
    MW_TRY(RequireLive(report.slot).WithContext(fmt::format("report \"{}\"", report.name)));
    const State& state = states_[report.slot.index()];
    if (state.received && state.content.name != report.name) {
      return InvalidArgument(fmt::format("report \"{}\" reads s{}, which was received as \"{}\"",
                                         report.name, report.slot.value(), state.content.name));
    }
    reported[report.slot.index()] = true;
  }
  for (const Program::Report& output : p_.outputs) {
    MW_TRY(RequireLive(output.slot).WithContext(fmt::format("output \"{}\"", output.name)));
    reported[output.slot.index()] = true;
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    const SlotId id(static_cast<int32_t>(i));
    if (states_[i].life == Life::kFilling) MW_TRY(RequireLive(id));
    if (states_[i].life == Life::kDead || p_.slots[i].persistent || reported[i]) continue;
    return InvalidArgument(fmt::format("s{} \"{}\" leaks: FREE it, report it or make it an output",
                                       i, p_.slots[i].name));
  }
  return OkStatus();
}

}  // namespace meshwright::ir
