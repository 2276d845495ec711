#include <fmt/format.h>

#include <map>
#include <set>

#include "base/parallel.h"
#include "ir/verify.h"
#include "ir/verify_facts.h"
#include "ir/verify_machine.h"

namespace meshwright::ir {
namespace {

using FactsList = std::vector<std::shared_ptr<const ExecutableFacts>>;

class ProgramsVerifier {
 public:
  ProgramsVerifier(std::span<const Program* const> programs, const VerifyOptions& options)
      : programs_(programs), options_(options) {}

  Status Run() {
    MW_ASSIGN_OR_RETURN(auto launches, CheckEach());
    MW_TRY(CheckPersistentSlots());
    for (auto& [name, members] : launches) {
      MW_TRY(CheckMembers(members));
      VerifyMachine machine(std::move(members), options_.one_per_mesh);
      MW_TRY(machine.Connect());
      MW_TRY(machine.Run());
    }
    return OkStatus();
  }

 private:
  // By name.
  Result<std::map<std::string, std::vector<VerifyMachine::Member>>> CheckEach() {
    std::vector<FactsList> facts;
    for (const Program* const program : programs_) {
      MW_ASSIGN_OR_RETURN(facts.emplace_back(), Facts(*program));
    }
    std::vector<Status> checked(programs_.size());
    ParallelItems(static_cast<int64_t>(programs_.size()), 1, [&](int64_t item) {
      const auto i = static_cast<size_t>(item);
      checked[i] = CheckProgram(*programs_[i], facts[i], options_.memory_budget_bytes);
    });
    std::map<std::string, std::vector<VerifyMachine::Member>> launches;
    for (size_t i = 0; i < programs_.size(); ++i) {
      if (!checked[i].ok()) return Fail(checked[i]);
      launches[programs_[i]->name].push_back({programs_[i], std::move(facts[i])});
    }
    return launches;
  }

  Result<FactsList> Facts(const Program& program) {
    FactsList list;
    for (size_t i = 0; i < program.executables.size(); ++i) {
      const Graph* graph = program.executables[i].graph.get();
      const std::string place = fmt::format("{}, executable e{}", ProgramPlace(program), i);
      if (!graph) return Fail(InvalidArgument(place + " has no graph"));
      auto& known = facts_[graph];
      if (!known) {
        auto facts = CollectFacts(*graph);
        if (!facts) return Fail(facts.error().WithContext(place));
        known = *facts;
      }
      list.push_back(known);
    }
    return list;
  }

  // Programs of one launch: different devices of one job with equal numbers of devices and
  // microbatches.
  Status CheckMembers(const std::vector<VerifyMachine::Member>& members) const {
    std::set<int> devices;
    const Program& first = *members[0].program;
    for (const VerifyMachine::Member& member : members) {
      const Program& program = *member.program;
      if (!devices.insert(program.device.value()).second) {
        return InvalidArgument(fmt::format("{} is there twice", ProgramPlace(program)));
      }
      if (program.device_count != first.device_count ||
          program.microbatches != first.microbatches) {
        return InvalidArgument(fmt::format("{}: {} devices and {} microbatches, {} has {} and {}",
                                           ProgramPlace(program), program.device_count,
                                           program.microbatches, ProgramPlace(first),
                                           first.device_count, first.microbatches));
      }
    }
    return OkStatus();
  }

  // A persistent slot is one tensor for all programs of a device.
  Status CheckPersistentSlots() const {
    std::map<std::pair<int, std::string_view>, std::pair<const Program*, const Slot*>> known;
    for (const Program* const each : programs_) {
      const Program& program = *each;
      for (const Slot& slot : program.slots) {
        if (!slot.persistent) continue;
        const auto [it, fresh] =
            known.try_emplace({program.device.value(), slot.name}, &program, &slot);
        const Slot& other = *it->second.second;
        if (fresh || (other.type == slot.type && other.global_dims == slot.global_dims &&
                      other.box == slot.box)) {
          continue;
        }
        return InvalidArgument(
            fmt::format("{}: persistent slot \"{}\" is {}, in {} it is {} or another part",
                        ProgramPlace(program), slot.name, slot.type.ToString(),
                        ProgramPlace(*it->second.first), other.type.ToString()));
      }
    }
    return OkStatus();
  }

  std::span<const Program* const> programs_;
  const VerifyOptions& options_;
  std::map<const Graph*, std::shared_ptr<const ExecutableFacts>> facts_;
};

}  // namespace

Status VerifyPrograms(std::span<const Program> programs, const VerifyOptions& options) {
  std::vector<const Program*> each;
  for (const Program& program : programs) each.push_back(&program);
  return VerifyPrograms(each, options);
}

Status VerifyPrograms(std::span<const Program* const> programs, const VerifyOptions& options) {
  return ProgramsVerifier(programs, options).Run();
}

}  // namespace meshwright::ir
