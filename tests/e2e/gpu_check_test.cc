// tools/gpu-check without a GPU: programs of a few lines stand for a build, for PyTorch and for
// compute-sanitizer, any library for the driver, in a copy of the tree's tools.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace meshwright::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Prints what mw_bench does of a GPU.
constexpr char kBench[] = R"(#!/bin/sh
on='"device":"Stub \"1\", 80 GB"'
none='"target":null,"met":null'
case $1 in
gpu-kernels)
  echo '{"case":"gpu-matmul-bf16","value":700,"unit":"TFLOP/s",'"$none,$on}"
  echo '{"case":"gpu-kernel","value":KERNEL,"unit":"us","target":">= 0.85","met":true,'"$on,"\
'"kind":"add [2, 3]","share_of_limit":0.93}'
  ;;
gpu-step)
  echo '{"case":"'"$2"'","value":120000,"unit":"tokens/s",'"$none,$on,"'"model_tflop_per_s":400}'
  echo '{"case":"'"$2"' idle","value":0,"unit":"of the step",IDLE}'
  ;;
esac
)";
constexpr char kIdle[] = R"("target":"<= 0.02","met":true,"idle":0.0125,"kernels_and_copies":300)";
constexpr char kNoTrace[] =
    R"("target":null,"met":null,"idle":null,"idle_note":"no trace: libcupti, there is none")";

// Trains: LOSS is the loss of every step.
constexpr char kMeshwright[] = R"(#!/bin/sh
verb=$1
while [ $# -gt 0 ]; do
  case $1 in
  --dir) dir=$2 ;;
  --record) record=$2 ;;
  training.steps=*) steps=${1#*=} ;;
  esac
  shift
done
case $verb in
up) mkdir -p "$dir" && echo "address 127.0.0.1:7" > "$dir/cluster.txt" ;;
submit) seq -f '{"step":%.0f,"loss":LOSS,"lr":1}' "$steps" > "$record" ;;
esac
)";

constexpr char kSuite[] = R"(#!/bin/sh
echo "$(basename "$0") $1 gpu=$MESHWRIGHT_TEST_GPU libraries=$LD_LIBRARY_PATH" >> suites.txt
echo '[       OK ] All/Suite.Works/Gpu (3 ms)'
)";
constexpr char kSkippingSuite[] = R"(#!/bin/sh
echo 'tests/machine_gpu.cc:17: Skipped'
echo 'no GPU: libcudnn.so.9: there is none'
echo '[  PASSED  ] 10 tests.'
)";

// PyTorch is there when asked with -c.
constexpr char kPython[] = R"(#!/bin/sh
echo "$LD_LIBRARY_PATH" >> "$(dirname "$0")/libraries-of-python.txt"
[ "$1" = -c ] || echo '{"tokens_per_s": 100000.5, "torch": "2.9.1", "losses": [4.1, 3.9]}'
)";
constexpr char kCrashingPython[] = R"(#!/bin/sh
[ "$1" = -c ] && exit 0
echo 'OutOfMemoryError: tried "3 GB", had 2' >&2
exit 1
)";
constexpr char kPythonWithoutTorch[] = "#!/bin/sh\necho has no PyTorch\nexit 3\n";

constexpr char kSanitizer[] = "#!/bin/sh\nshift 4\nexec \"$@\"\n";
// What says that programs and plugin fit together.
constexpr char kInterface[] = "\n# 0.1.0-0123456789ab\n";

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// Where the loader has a library that every program of this project needs.
std::string PathOfLibrary(const char* name) {
  void* const library = dlopen(name, RTLD_NOW);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return "";
  return fs::canonical(map->l_name).string();
}

class GpuCheck : public ::testing::Test {
 protected:
  GpuCheck() {
    for (const auto& entry : fs::directory_iterator(MESHWRIGHT_SOURCE_DIR "/tools")) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("gpu-check")) continue;
      fs::create_directories(dir_.File("tools"));
      fs::copy_file(entry.path(), dir_.File("tools/" + name));
    }
    fs::create_directories(dir_.File("bench/peers"));
    fs::create_directories(dir_.File("driver"));
    fs::create_symlink(PathOfLibrary("libgcc_s.so.1"), dir_.File("driver/libcuda.so.1"));
    Program("tools/make-corpus.sh", "#!/bin/sh\nmkdir -p runs/data\n[ -s $1 ] || echo made > $1\n");
    Bench("9.5", kIdle);
    Program("build/bin/meshwright", Replaced(kMeshwright, "LOSS", "3.25"));
    for (const char* suite : {"device", "ops", "collective"}) {
      Program("build/tests/conformance_" + std::string(suite) + "_test", kSuite);
    }
    Program("build/tests/virtual_test", kSuite);
    Program("path/compute-sanitizer", kSanitizer);
    Program("path/python", kPython);
  }

  void Program(const std::string& name, const std::string& text) {
    const std::string path = dir_.File(name);
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    fs::permissions(path, fs::perms::owner_all);
  }
  void Bench(const std::string& kernel, const std::string& idle) {
    Program("build/bin/mw_bench", Replaced(Replaced(kBench, "KERNEL", kernel), "IDLE", idle));
  }

  ProcessOutput Call(const std::vector<std::string>& args, bool with_driver = true) {
    SubprocessOptions options;
    options.args = {dir_.File("tools/gpu-check")};
    options.args.insert(options.args.end(), args.begin(), args.end());
    options.directory = dir_.path();
    options.env = {{"PATH", dir_.File("path") + ":" + std::getenv("PATH")},
                   {"LD_LIBRARY_PATH", with_driver ? dir_.File("driver") : ""}};
    return RunProcess(options, 60'000).value();
  }

  // Runs the build that stands for one; keeps its lines.
  std::string Check(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"--build", "build", "--python", "path/python"};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessOutput output = Call(args);
    EXPECT_EQ(output.stderr_text, "");
    lines_.clear();
    for (const std::string& line : Split(output.stdout_text, '\n')) {
      if (!line.empty()) lines_.push_back(json::parse(line));
    }
    return output.exit.ToString();
  }

  // The only line of a case, of a job where the case is of one.
  json Line(const std::string& name, const std::string& job = "") {
    json found;
    for (const json& line : lines_) {
      if (line["case"] != name || line.value("job", "") != job) continue;
      EXPECT_TRUE(found.is_null()) << "two lines of " << name;
      found = line;
    }
    EXPECT_FALSE(found.is_null()) << "no line of " << name;
    return found.is_null() ? json::object() : found;
  }

  TempDir dir_ = TempDir::Make("mw-gpu-check").value();
  std::vector<json> lines_;
};

TEST_F(GpuCheck, SaysWhyNothingIsChecked) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "there is a driver";
  const ProcessOutput output = Call({}, false);
  EXPECT_EQ(output.exit.ToString(), "exited with 3");
  EXPECT_THAT(
      output.stdout_text,
      StartsWith("{\"case\":\"gpu\",\"skipped\":\"there is no NVIDIA driver on this machine "
                 "(libcuda.so.1)\"}\n{\"case\":\"gpu-check\",\"judged\":0,\"met\":0,"
                 "\"skipped\":1,"));
}

TEST_F(GpuCheck, RefusesWhatItDoesNotKnow) {
  const auto refusal = [&](const std::vector<std::string>& args) {
    const ProcessOutput output = Call(args);
    EXPECT_EQ(output.exit.ToString(), "exited with 2") << Join(args, " ");
    EXPECT_EQ(output.stdout_text, "");
    return output.stderr_text;
  };
  EXPECT_THAT(refusal({"--fast"}),
              HasSubstr("unknown argument --fast; see tools/gpu-check --help"));
  EXPECT_THAT(refusal({"--rounds", "none"}), HasSubstr("--rounds needs a number"));
  EXPECT_THAT(refusal({"--build"}), HasSubstr("--build needs a value"));
  EXPECT_THAT(refusal({"--build", "path"}), HasSubstr("path has no bin/meshwright"));
  EXPECT_THAT(refusal({"--python", "./python"}), HasSubstr("there is no program"));
  EXPECT_THAT(refusal({"--with-cuda"}), HasSubstr("--with-cuda belongs to --pack"));
  EXPECT_THAT(refusal({"--table"}), HasSubstr("there is no runs/gpu-check/results.jsonl"));
  EXPECT_THAT(Call({"--help"}).stdout_text, AllOf(HasSubstr("--quick"), HasSubstr("libcublasLt")));
}

TEST_F(GpuCheck, ALineForEachCaseThenASummary) {
  EXPECT_EQ(Check(), "exited with 0");
  EXPECT_EQ(Line("first-kernels")["device"], "Stub \"1\", 80 GB");
  EXPECT_EQ(Line("suite-ops")["tests"], 1);
  EXPECT_EQ(Line("sanitizer-racecheck")["met"], true);
  EXPECT_EQ(Line("train-gpu-bf16")["steps"], 200);
  EXPECT_EQ(Line("loss-gpu-f32")["value"], 0);
  EXPECT_EQ(Line("gpu-kernel", "gpt2-gpu")["kind"], "add [2, 3]");
  EXPECT_EQ(Line("gpu-kernel", "llama-1b")["met"], true);
  EXPECT_EQ(Line("step-gpt2-gpu")["ratio"], 1.2);
  EXPECT_EQ(Line("mfu-llama-1b")["met"], true);
  EXPECT_EQ(Line("idle-llama-1b")["value"], 0.0125);
  EXPECT_EQ(lines_.back()["case"], "gpu-check");
  EXPECT_EQ(lines_.back()["judged"], 20);
  EXPECT_EQ(lines_.back()["met"], 20);
  EXPECT_EQ(lines_.back()["skipped"], 0);
}

// Emulated libraries compile generated kernels for the host: the machine may have no compiler.
TEST_F(GpuCheck, RunsWhatIsOfGpus) {
  EXPECT_EQ(Check(), "exited with 0");
  const std::string suites = ReadFile(dir_.File("suites.txt")).value();
  EXPECT_THAT(suites, HasSubstr("conformance_device_test --gtest_filter=*/Gpu gpu=machine"));
  EXPECT_THAT(suites, HasSubstr("conformance_ops_test --gtest_filter=-*CudaLibraries.*"));
  EXPECT_THAT(suites, HasSubstr("*GpuTable.Bf16*/attention*"));
}

TEST_F(GpuCheck, ALibraryThatIsMissingIsNotAMissingGpu) {
  const auto bench = [&](const std::string& reason) {
    Program("build/bin/mw_bench",
            "#!/bin/sh\necho '{\"case\":\"gpu\",\"skipped\":\"" + reason + "\"}'\nexit 3\n");
    return Check();
  };
  EXPECT_EQ(bench("libcudart.so.13: cannot open it, there is none"), "exited with 1");
  EXPECT_EQ(Line("first-kernels")["error"], "libcudart.so.13: cannot open it, there is none");
  EXPECT_EQ(lines_.size(), 2u);
  EXPECT_EQ(bench("the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)"),
            "exited with 3");
  Program("build/bin/mw_bench", "#!/bin/sh\necho 'mw_bench: libgrpc.so: none' >&2\nexit 127\n");
  EXPECT_EQ(Check(), "exited with 1");
  EXPECT_EQ(Line("first-kernels")["error"], "mw_bench: libgrpc.so: none, exit code 127");
}

TEST_F(GpuCheck, WithoutATextNothingIsTrained) {
  Program("tools/make-corpus.sh",
          "#!/bin/sh\necho 'make-corpus: no \"bible\", no text' >&2\nexit 1\n");
  EXPECT_EQ(Check(), "exited with 1");
  EXPECT_EQ(Line("corpus")["error"], "make-corpus: no \"bible\", no text, exit code 1");
  EXPECT_EQ(Line("training")["skipped"], "there is no text to train on");
  EXPECT_EQ(lines_.back()["met"], lines_.back()["judged"].get<int>() - 1);
}

TEST_F(GpuCheck, LossesThatAreNoNumbersMeetNothing) {
  for (const char* loss : {"null", ""}) {
    Program("build/bin/meshwright", Replaced(kMeshwright, "LOSS", loss));
    EXPECT_EQ(Check(), "exited with 1");
    EXPECT_EQ(Line("loss-gpu-f32")["met"], false);
    EXPECT_TRUE(Line("loss-gpu-f32")["value"].is_null());
    EXPECT_THAT(Line("loss-gpu-bf16")["error"].get<std::string>(), HasSubstr("step 151"));
  }
  Program("build/bin/meshwright", Replaced(kMeshwright, "submit)", "nothing)"));
  EXPECT_EQ(Check({"--quick"}), "exited with 1");
  EXPECT_EQ(Line("loss-gpu-f32")["error"], "0 losses of 20 steps");
}

TEST_F(GpuCheck, AFailedTrainingHasNoLosses) {
  Program("build/bin/meshwright", "#!/bin/sh\necho 'error: no device' >&2\nexit 1\n");
  EXPECT_EQ(Check(), "exited with 1");
  EXPECT_EQ(Line("train-cpu-f32")["error"], "error: no device, exit code 1");
  EXPECT_EQ(Line("loss-gpu-f32")["skipped"], "a training failed");
}

TEST_F(GpuCheck, WhatWasNotMeasuredIsNull) {
  Bench("nan", kNoTrace);
  EXPECT_EQ(Check(), "exited with 1");
  EXPECT_TRUE(Line("gpu-kernel", "gpt2-gpu")["value"].is_null());
  EXPECT_EQ(Line("gpu-kernel", "gpt2-gpu")["met"], false);
  EXPECT_TRUE(Line("idle-gpt2-gpu")["value"].is_null());
  EXPECT_TRUE(Line("idle-gpt2-gpu")["met"].is_null());
  EXPECT_EQ(Line("idle-gpt2-gpu")["note"], "no trace: libcupti, there is none");
}

TEST_F(GpuCheck, APyTorchThatFailsIsToldAndNoPyTorchIsSkipped) {
  Program("path/python", kCrashingPython);
  EXPECT_EQ(Check(), "exited with 1");
  EXPECT_EQ(Line("step-gpt2-gpu")["value"], 120000);
  EXPECT_TRUE(Line("step-gpt2-gpu")["ratio"].is_null());
  EXPECT_EQ(Line("step-llama-1b")["error"],
            "PyTorch: OutOfMemoryError: tried \"3 GB\", had 2, exit code 1");
  Program("path/python", kPythonWithoutTorch);
  EXPECT_EQ(Check(), "exited with 0");
  EXPECT_TRUE(Line("step-gpt2-gpu")["met"].is_null());
  EXPECT_THAT(Line("step-gpt2-gpu")["skipped"].get<std::string>(), HasSubstr("has no PyTorch"));
}

TEST_F(GpuCheck, WhatTakesTooLongIsStopped) {
  Program("build/tests/virtual_test", "#!/bin/sh\nsleep 50\n");
  EXPECT_EQ(Check({"--limit", "2"}), "exited with 1");
  EXPECT_EQ(Line("suite-jobs")["error"], "took longer than 2 s");
  EXPECT_EQ(Line("suite-ops")["met"], true);
  EXPECT_LT(Line("suite-jobs")["value"], 30);
}

TEST_F(GpuCheck, SuitesThatShowNothingAreNotMet) {
  fs::remove(dir_.File("build/tests/conformance_ops_test"));
  Program("build/tests/virtual_test", kSkippingSuite);
  EXPECT_EQ(Check(), "exited with 1");
  EXPECT_EQ(Line("suite-ops")["skipped"], "conformance_ops_test is not in the build");
  EXPECT_EQ(Line("sanitizer-memcheck")["skipped"], "conformance_ops_test is not in the build");
  EXPECT_EQ(Line("suite-jobs")["error"], "no test ran: no GPU: libcudnn.so.9: there is none");
}

TEST_F(GpuCheck, CarriedLibrariesAreForOurProgramsOnly) {
  fs::create_directories(dir_.File("build/lib"));
  fs::create_directories(dir_.File("build/data"));
  ASSERT_TRUE(WriteFileAtomic(dir_.File("build/data/corpus.txt"), "carried").ok());
  EXPECT_EQ(Check(), "exited with 0");
  EXPECT_EQ(ReadFile(dir_.File("runs/data/corpus.txt")).value(), "carried");
  const std::string ours = "libraries=" + dir_.File("build/lib") + ":" + dir_.File("driver");
  EXPECT_THAT(ReadFile(dir_.File("suites.txt")).value(), HasSubstr(ours));
  EXPECT_THAT(ReadFile(dir_.File("path/libraries-of-python.txt")).value(),
              Not(HasSubstr("build/lib")));
}

TEST_F(GpuCheck, TableHasTheLastResults) {
  Program("build/bin/meshwright", Replaced(kMeshwright, "LOSS", "null"));
  Bench("9.5", kNoTrace);
  EXPECT_EQ(Check(), "exited with 1");
  const ProcessOutput table = Call({"--table"});
  EXPECT_EQ(table.exit.ToString(), "exited with 0");
  EXPECT_THAT(table.stdout_text, HasSubstr("on Stub \"1\", 80 GB."));
  EXPECT_THAT(table.stdout_text, HasSubstr("\n| case | command of it | target | measured |\n"));
  EXPECT_THAT(table.stdout_text, HasSubstr("| 120000 tokens/s, 1.2 x PyTorch 2.9.1 |"));
  EXPECT_THAT(table.stdout_text, HasSubstr("57.1 % of 700 TFLOP/s |"));
  EXPECT_THAT(table.stdout_text, HasSubstr("2 of 2, the slowest 93 % (add [2, 3] of gpt2-gpu)"));
  EXPECT_THAT(table.stdout_text, HasSubstr("gpt2-gpu: not measured: no trace: libcupti"));
  EXPECT_THAT(table.stdout_text, HasSubstr("| failed: losses of step 1: "));
}

TEST_F(GpuCheck, PacksABuildWithTheLibrariesItNeeds) {
  const std::string library = ReadFile(PathOfLibrary("libstdc++.so.6")).value();
  Program("build/bin/libmeshwright_cuda.so", library + kInterface);
  const auto programs = {"bin/meshwright",
                         "bin/mw_bench",
                         "tests/conformance_device_test",
                         "tests/conformance_ops_test",
                         "tests/conformance_collective_test",
                         "tests/virtual_test"};
  const std::vector<std::string> pack = {"--pack", "packed.tar.gz", "--build", "build"};
  const ProcessOutput mixed = Call(pack);
  EXPECT_EQ(mixed.exit.ToString(), "exited with 1");
  EXPECT_THAT(mixed.stderr_text, HasSubstr("bin/meshwright is of another state than the plugin"));
  for (const std::string name : programs)
    Program("build/" + name, std::string(kSuite) + kInterface);
  const ProcessOutput packed = Call(pack);
  EXPECT_EQ(packed.exit.ToString(), "exited with 0") << packed.stderr_text;
  SubprocessOptions list;
  list.args = {"tar", "-tzf", dir_.File("packed.tar.gz")};
  const std::string names = RunProcess(list, 60'000).value().stdout_text;
  for (const std::string name : programs) EXPECT_THAT(names, HasSubstr(name));
  EXPECT_THAT(names, HasSubstr("lib/libgcc_s.so.1\n"));
  EXPECT_THAT(names, HasSubstr("data/corpus.txt\n"));
  EXPECT_THAT(names, AllOf(Not(HasSubstr("libc.so.6")), Not(HasSubstr("libm.so.6"))));
  fs::remove(dir_.File("build/bin/mw_bench"));
  EXPECT_EQ(Call(pack).exit.ToString(), "exited with 2");
}

}  // namespace
}  // namespace meshwright::testing
