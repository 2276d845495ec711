// mw_fuzz TARGET [libFuzzer's options and folders]: one target of the table under libFuzzer.
// mw_fuzz --list: their names. mw_fuzz TARGET --write-seeds FOLDER: its seeds as files.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "tests/fuzz/target.h"

namespace {

const meshwright::fuzz::Target* chosen = nullptr;

[[noreturn]] void ListAndEnd(int code) {
  for (const auto& target : meshwright::fuzz::AllTargets()) {
    std::printf("%-24s %s\n", target.name.c_str(), target.of.c_str());
  }
  std::exit(code);
}

[[noreturn]] void WriteSeedsAndEnd(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : chosen->seeds()) {
    const auto written =
        meshwright::WriteFileAtomic(folder + "/seed-" + std::to_string(number++), seed);
    if (!written.ok()) {
      std::fprintf(stderr, "%s\n", written.message().c_str());
      std::exit(1);
    }
  }
  std::printf("%d seeds of %s in %s\n", number, chosen->name.c_str(), folder.c_str());
  std::exit(0);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc < 2 || std::strcmp((*argv)[1], "--list") == 0) ListAndEnd(*argc < 2 ? 2 : 0);
  chosen = meshwright::fuzz::FindTarget((*argv)[1]);
  if (chosen == nullptr) {
    std::fprintf(stderr, "mw_fuzz: no target is called \"%s\"; there are:\n", (*argv)[1]);
    ListAndEnd(2);
  }
  if (*argc == 4 && std::strcmp((*argv)[2], "--write-seeds") == 0) WriteSeedsAndEnd((*argv)[3]);
  for (int i = 1; i + 1 < *argc; ++i) (*argv)[i] = (*argv)[i + 1];
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
