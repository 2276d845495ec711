// Diagnoses of random jobs: one rank is stopped at a random place, the others run as far as they
// can, and the marks say who it was.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "controller/diagnosis.h"
#include "tests/property/ir_program_generator.h"
#include "tests/scale.h"

namespace meshwright::controller {
namespace {

using ir::Opcode;
using ir::testing::Channels;
using ir::testing::GenerateJob;

constexpr uint64_t kStoppedJobs = kSanitizedBuild ? 40 : 600;
constexpr int kStepsOfMarch = 3;

bool Meets(ir::Op op) {
  return op == ir::Op::kAllReduce || op == ir::Op::kAllGather || op == ir::Op::kReduceScatter ||
         op == ir::Op::kAllToAll;
}

// The name of the group that a collective of the program runs in, and its members.
std::pair<std::string, std::set<int>> GroupOf(const ir::Program& program,
                                              const std::vector<std::string>& axes) {
  std::set<int> ranks;
  for (size_t i = 0; i < program.mesh_devices.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    bool member = true;
    for (size_t a = program.axes.size(); a-- > 0;) {
      const int64_t coord = rest % program.axes[a].size;
      rest /= program.axes[a].size;
      const bool along = std::find(axes.begin(), axes.end(), program.axes[a].name) != axes.end();
      member = member && (along || coord == program.coords[a]);
    }
    if (member) ranks.insert(program.mesh_devices[i].value());
  }
  return {fmt::format("{}/{}", fmt::join(axes, ","), fmt::join(ranks, "-")), ranks};
}

// Where a rank is stopped: in this step, before this instruction, or before this collective of it.
struct Stop {
  int rank = -1;
  int step = 0;
  size_t instruction = 0;
  size_t collective = 0;
};

// Ranks that walk through their lists, without anything between two steps that holds them.
class March {
 public:
  March(const std::vector<ir::Program>& programs, std::optional<Stop> stop) : stop_(stop) {
    for (const ir::Program& program : programs) {
      ranks_.push_back({&program});
      for (const ir::ChannelEnd& end : program.channels) room_[end.name] = end.capacity;
    }
  }

  void Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) {
        while (Advance(rank)) moved = true;
      }
    }
  }

  std::vector<RankAt> Marks() const {
    std::vector<RankAt> all;
    for (const Rank& rank : ranks_) {
      proto::RankMarks marks;
      marks.rank = rank.program->device.value();
      marks.in_step = rank.step < kStepsOfMarch;
      marks.program = rank.program->name;
      marks.step = marks.in_step ? rank.step : rank.step - 1;
      marks.steps_begun = marks.step + 1;
      marks.instruction = static_cast<int64_t>(rank.pc);
      for (const auto& [name, group] : rank.groups) {
        marks.groups.push_back({name, group.entered, group.done});
      }
      all.push_back({marks, "between two steps"});
    }
    return all;
  }
  std::set<int> Standing() const {
    std::set<int> standing;
    for (const Rank& rank : ranks_) {
      if (rank.step < kStepsOfMarch) standing.insert(rank.program->device.value());
    }
    return standing;
  }

 private:
  struct Group {
    int64_t entered = 0, done = 0;
    std::set<int> members;
  };
  struct Rank {
    const ir::Program* program = nullptr;
    int step = 0;
    size_t pc = 0;
    size_t collective = 0;  // inside a RUN
    std::map<std::string, Group> groups = {};
  };

  bool IsStopped(const Rank& rank) const {
    return stop_ && stop_->rank == rank.program->device.value() && stop_->step == rank.step &&
           stop_->instruction == rank.pc && stop_->collective == rank.collective;
  }

  bool Advance(Rank& rank) {
    if (rank.step == kStepsOfMarch || IsStopped(rank)) return false;
    const ir::Instruction& instruction = rank.program->instructions[rank.pc];
    if (instruction.op == Opcode::kRun) return AdvanceRun(rank, instruction);
    if (instruction.op != Opcode::kFree) {
      const ir::ChannelEnd& end = rank.program->channels[instruction.channel.index()];
      int64_t& room = room_[end.name];
      const bool sends = instruction.op == Opcode::kSend;
      if (sends ? room == 0 : room == end.capacity) return false;
      room += sends ? -1 : 1;
    }
    return Next(rank);
  }

  bool Next(Rank& rank) {
    rank.collective = 0;
    if (++rank.pc == rank.program->instructions.size()) {
      rank.pc = 0;
      ++rank.step;
    }
    return true;
  }

  // Enters the next collective of the RUN, or leaves the one that it is in.
  bool AdvanceRun(Rank& rank, const ir::Instruction& run) {
    size_t index = 0;
    for (const ir::Node& node : rank.program->executables[run.executable.index()].graph->nodes) {
      if (!Meets(node.op)) continue;
      const auto [name, members] = GroupOf(*rank.program, node.attrs.Strs("axes"));
      if (members.size() == 1 || index++ < rank.collective) continue;
      Group& group = rank.groups[name];
      group.members = members;
      if (group.entered == group.done) {
        ++group.entered;
        return true;
      }
      if (!AllHaveEntered(name, group)) return false;
      ++group.done;
      ++rank.collective;
      return true;
    }
    return Next(rank);
  }

  bool AllHaveEntered(const std::string& name, const Group& group) {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](Rank& other) {
      return !group.members.contains(other.program->device.value()) ||
             other.groups[name].entered >= group.entered;
    });
  }

  const std::optional<Stop> stop_;
  std::vector<Rank> ranks_;
  std::map<std::string, int64_t> room_;  // of channels
};

std::set<int> RanksIn(const std::vector<RankPlaceText>& places) {
  std::set<int> ranks;
  for (const RankPlaceText& place : places) ranks.insert(place.rank);
  return ranks;
}

StepLists ListsOf(const std::vector<ir::Program>& programs) {
  return StepLists({{programs[0].name, programs}});
}

size_t CollectivesAt(const ir::Program& program, size_t instruction) {
  const ir::Instruction& run = program.instructions[instruction];
  if (run.op != Opcode::kRun) return 0;
  const auto& nodes = program.executables[run.executable.index()].graph->nodes;
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), [&](const ir::Node& node) {
    return Meets(node.op) && GroupOf(program, node.attrs.Strs("axes")).second.size() > 1;
  }));
}

TEST(DiagnosisProperty, NamesTheRankThatWasStoppedAndAllThatWaitForIt) {
  int waiting = 0;
  for (uint64_t seed = 0; seed < kStoppedJobs; ++seed) {
    const auto job = GenerateJob(seed);
    std::mt19937_64 random(seed);
    const ir::Program& program = job.programs[random() % job.programs.size()];
    Stop stop{program.device.value(), static_cast<int>(random() % kStepsOfMarch),
              random() % program.instructions.size(), 0};
    stop.collective = random() % (CollectivesAt(program, stop.instruction) + 1);
    March march(job.programs, stop);
    march.Run();
    const StepLists lists = ListsOf(job.programs);
    const Diagnosis diagnosis = Diagnose(&lists, march.Marks());
    const std::string context =
        fmt::format("seed {}: {}; rank {} stopped at step {}, instruction {}, collective {}", seed,
                    job.description, stop.rank, stop.step, stop.instruction, stop.collective);
    ASSERT_EQ(RanksIn(diagnosis.roots), (std::set<int>{stop.rank})) << context;
    ASSERT_FALSE(diagnosis.circle) << context;
    std::set<int> others = march.Standing();
    others.erase(stop.rank);
    ASSERT_EQ(RanksIn(diagnosis.waiters), others) << context;
    waiting += others.empty() ? 0 : 1;
    const std::string where = fmt::format("at instruction {} (", stop.instruction);
    ASSERT_NE(diagnosis.roots[0].where.find(where), std::string::npos)
        << diagnosis.roots[0].where << "\n"
        << context;
  }
  EXPECT_GT(waiting, static_cast<int>(kStoppedJobs) / 4);
}

TEST(DiagnosisProperty, NamesACircleWhereNobodyWasStopped) {
  int circles = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto job = GenerateJob(seed, Channels::kTight);
    March march(job.programs, std::nullopt);
    march.Run();
    if (march.Standing().empty()) continue;
    ++circles;
    const StepLists lists = ListsOf(job.programs);
    const Diagnosis diagnosis = Diagnose(&lists, march.Marks());
    ASSERT_TRUE(diagnosis.circle) << "seed " << seed;
    ASSERT_GE(diagnosis.roots.size(), 2u) << "seed " << seed;
    std::set<int> all = RanksIn(diagnosis.roots);
    all.merge(RanksIn(diagnosis.waiters));
    for (const int rank : all) ASSERT_TRUE(march.Standing().contains(rank)) << "seed " << seed;
  }
  EXPECT_GT(circles, 0);
}

}  // namespace
}  // namespace meshwright::controller
