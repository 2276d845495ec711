#include "report/plan_svg.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "report/plan_figures.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;

int CountOf(std::string_view text, std::string_view what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(PlanSvg, DrawsEveryRunMessageAndTheLargestWeights) {
  const mesh::Topology topology = mesh::Topology::Local(2);
  const auto two = PlanSmallJob(
      {"parallelism.pipeline_parallel_degree=2", "parallelism.pipeline_parallel_microbatches=4"},
      topology);
  ASSERT_TRUE(two.has_value()) << two.error();
  const std::string svg = PlanSvg(two->plan(), two->forecast, topology);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << svg.substr(0, 100);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(CountOf(svg, "<title>"), static_cast<int>(two->forecast.simulation.spans.size()));
  int sends = 0;
  for (const ir::Program& program : two->plan().Main()) {
    for (const ir::Instruction& instruction : program.instructions) {
      sends += instruction.op == ir::Opcode::kSend ? 1 : 0;
    }
  }
  EXPECT_GT(sends, 0);
  EXPECT_EQ(CountOf(svg, "<line "), sends);
  EXPECT_EQ(CountOf(svg, "<path "), 2) << "memory of each stage";
  EXPECT_THAT(svg, HasSubstr(">s1 device 1</text>"));
  const PlanFigures figures = FiguresOf(*two);
  EXPECT_THAT(svg, HasSubstr(">step " + FormatDuration(figures.step_s)));
  EXPECT_THAT(svg, HasSubstr(FormatBytes(figures.memory_bytes) + " allocated at most"))
      << "the same numbers as in tables";
  EXPECT_THAT(svg, HasSubstr("transformer.wte.weight: f32[256,64]"));
  EXPECT_EQ(CountOf(svg, "<g "), CountOf(svg, "</g>"));
}

// Where the rows begin, whatever a device has.
TEST(PlanSvg, LabelsEndBeforeTheirRows) {
  mesh::Topology topology = mesh::Topology::Local(1);
  const auto one = PlanSmallJob({}, topology);
  ASSERT_TRUE(one.has_value()) << one.error();
  topology.devices[0].memory_bytes = one->plan().memory[0].total_bytes;
  const std::string svg = PlanSvg(one->plan(), one->forecast, topology);
  const size_t label = svg.find(", 100 %</text>");
  ASSERT_NE(label, std::string::npos);
  const size_t begin = svg.rfind('>', label);
  // 8 across for a letter, as the picture counts itself.
  const double end = 16 + 8 * static_cast<double>(label + 7 - begin - 1);
  const size_t strip = svg.find("<path d=\"M");
  ASSERT_NE(strip, std::string::npos);
  EXPECT_LT(end, std::stod(svg.substr(strip + 10)));
}

// A strip per stage and memory, and in it an area for each kind.
TEST(PlanSvg, ShowsFartherMemoriesByKind) {
  const mesh::Topology topology = mesh::Topology::Local(2);
  std::vector<std::string> keys = {"parallelism.pipeline_parallel_degree=2",
                                   "parallelism.offload_chunk_bytes=4096"};
  const auto near = PlanSmallJob(keys, topology);
  keys.insert(keys.end(),
              {"parallelism.optimizer_memory=\"disk\"", "parallelism.activations_memory=\"host\""});
  const auto far = PlanSmallJob(keys, topology);
  ASSERT_TRUE(near.has_value() && far.has_value()) << near.error() << far.error();
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;
  for (const planner::DeviceMemory& memory : far->plan().memory) {
    host_bytes = std::max(host_bytes, memory.host.total_bytes);
    disk_bytes = std::max(disk_bytes, memory.disk.total_bytes);
  }
  ASSERT_GT(host_bytes, 0);
  ASSERT_GT(disk_bytes, 0);
  const std::string svg = PlanSvg(far->plan(), far->forecast, topology);
  const std::string host =
      fmt::format(">memory of the host over time, {} allocated at most<", FormatBytes(host_bytes));
  const std::string disk =
      fmt::format(">disk over time, {} allocated at most<", FormatBytes(disk_bytes));
  EXPECT_THAT(svg, HasSubstr(host));
  EXPECT_THAT(svg, HasSubstr(disk));
  // Colours that the device's legend has: of the device all kinds, of the disk one.
  const std::string of_host = svg.substr(svg.find(host), svg.find(disk) - svg.find(host));
  const std::string of_disk = svg.substr(svg.find(disk));
  constexpr std::string_view kActivations = "fill=\"#a5688f\"";
  constexpr std::string_view kOptimizer = "fill=\"#5b7fb5\"";
  for (const char* const kind : {"weights", "gradients", "optimizer", "activations"}) {
    EXPECT_EQ(CountOf(svg, fmt::format(">{}</text>", kind)), 1) << kind;
  }
  EXPECT_EQ(CountOf(of_host, "<path "), 2);
  EXPECT_EQ(CountOf(of_host, kActivations), 2);
  EXPECT_EQ(CountOf(of_disk, "<path "), 2);
  EXPECT_EQ(CountOf(of_disk, kOptimizer), 2);
  EXPECT_GE(CountOf(svg, "<path "), 2 * (4 + 1 + 1));
  const std::string plain = PlanSvg(near->plan(), near->forecast, topology);
  EXPECT_EQ(CountOf(plain, " over time, "), 1);
  EXPECT_EQ(CountOf(plain, "<path "), 2) << "of the device alone kinds are one";
}

// Of a folded pipeline of two stages, the first has the first and the last part of the model.
TEST(PlanSvg, PartsOfAStageAreToldApartAndRunsHaveTheirMicrobatch) {
  const mesh::Topology topology = mesh::Topology::Local(2);
  for (const char* schedule : {"v-half", "v-min", "zb-v", "interleaved"}) {
    const auto folded =
        PlanSmallJob({"model.n_layers=4", "parallelism.pipeline_parallel_degree=2",
                      "parallelism.pipeline_parallel_microbatches=4",
                      fmt::format("parallelism.pipeline_parallel_schedule=\"{}\"", schedule)},
                     topology);
    ASSERT_TRUE(folded.has_value()) << schedule << ": " << folded.error();
    const std::string svg = PlanSvg(folded->plan(), folded->forecast, topology);
    const int last_of_first = std::string(schedule) == "interleaved" ? 2 : 3;
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      for (const int part : {0, last_of_first}) {
        EXPECT_EQ(CountOf(svg, fmt::format("forward of microbatch {}, part {} of the model",
                                           microbatch, part)),
                  1)
            << schedule;
      }
      EXPECT_GE(CountOf(svg, fmt::format(">{}</text>", microbatch)), 8) << schedule;
    }
    EXPECT_THAT(svg, HasSubstr(">part 1 of a stage</text>"));
    // The legend, and a run for each microbatch, of the later part's blue on both stages.
    EXPECT_EQ(CountOf(svg, "fill=\"#406880\""), 1 + 4 * 2) << schedule;
  }
}

TEST(PlanSvg, StepsOfASharedVocabularyAreToldApart) {
  const mesh::Topology topology = mesh::Topology::Local(2);
  const auto shared = PlanSmallJob({"model.n_layers=4", "parallelism.pipeline_parallel_degree=2",
                                    "parallelism.pipeline_parallel_microbatches=4",
                                    "parallelism.pipeline_parallel_schedule=\"1f1b-vocab\""},
                                   topology);
  ASSERT_TRUE(shared.has_value()) << shared.error();
  const std::string svg = PlanSvg(shared->plan(), shared->forecast, topology);
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    // The loss is of the last stage alone, the others of both.
    for (const auto& [step, count] :
         {std::pair("embedding", 2), {"layers", 2}, {"output", 2}, {"loss", 1}}) {
      EXPECT_EQ(CountOf(svg, fmt::format("forward of microbatch {}, {}:", microbatch, step)), count)
          << step;
    }
  }
  EXPECT_THAT(svg, HasSubstr(">embedding</text>"));
}

TEST(PlanSvg, SaysWhichDevicesShareExpertsAndRows) {
  const mesh::Topology topology = mesh::Topology::Local(4);
  const auto nested = PlanSmallJob({"parallelism.context_parallel_degree=4",
                                    "parallelism.context_parallel_attention=\"nested\""},
                                   topology);
  ASSERT_TRUE(nested.has_value()) << nested.error();
  const std::string rows = PlanSvg(nested->plan(), nested->forecast, topology);
  EXPECT_THAT(rows, HasSubstr("the 4 devices that share a row are 2 groups of 2 neighbours"));
  EXPECT_THAT(rows, HasSubstr("over context=2 context2=2"));
  const auto mixture = PlanSmallJob(
      {"model.name=\"mixtral\"", "model.n_experts=4", "model.experts_per_token=2",
       "parallelism.data_parallel_replicate_degree=4", "parallelism.expert_parallel_degree=2"},
      topology);
  ASSERT_TRUE(mixture.has_value()) << mixture.error();
  const std::string experts = PlanSvg(mixture->plan(), mixture->forecast, topology);
  EXPECT_THAT(experts, HasSubstr("the 4 replicas are 2 groups of 2 that share the experts"));
  EXPECT_THAT(experts, HasSubstr("over data=2 expert=2"));
}

TEST(PlanSvg, OfManyDevicesHasARowPerStage) {
  const mesh::Topology topology = mesh::Topology::Local(64);
  const auto many = PlanSmallJob(
      {"parallelism.data_parallel_replicate_degree=8", "parallelism.tensor_parallel_degree=4",
       "parallelism.pipeline_parallel_degree=2"},
      topology);
  ASSERT_TRUE(many.has_value()) << many.error();
  const std::string svg = PlanSvg(many->plan(), many->forecast, topology);
  EXPECT_THAT(svg, HasSubstr(">s0 device 0</text>"));
  EXPECT_THAT(svg, HasSubstr(">s1 device 32</text>"));
  EXPECT_EQ(CountOf(svg, ">s0 device 1</text>"), 0);
}

}  // namespace
}  // namespace meshwright::report
