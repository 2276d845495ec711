// RunStories: keeps the plans of jobs that run and what devices write down of their steps, and
// tells what happened beside what was forecast (controller/run_story.h).
//
// Newly recorded steps also go into files in the job's folder, for the page: kTimelineFile,
// kMeasuredPicture and kPartsFile; into metrics; and into the factors of the devices' profiles
// (mesh/measured_factors.h), which are kept in a file and are what later plans go by.
//
// A job that goes on with fewer devices runs by a plan that was made ahead: what is told is of the
// plan that it runs by now, unless somebody asks for steps of another one.
//
// Bounded: the newest plans are kept, kMostPlans of them and kMostInstructions altogether, and of
// those that may never be needed the oldest goes first; who asks about one that is gone is told so.
//
// Thread rule: thread-safe; one thread of its own does the work, another one searches for what to
// try, so that records do not wait for that. Ownership: owns plans and records.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "controller/run_story.h"

namespace meshwright::web {

inline constexpr const char* kTimelineFile = "timeline.json";
inline constexpr const char* kMeasuredPicture = "measured.svg";
inline constexpr const char* kPartsFile = "parts.json";

struct StoryOptions {
  static constexpr size_t kMostPlans = 48;
  static constexpr size_t kMostInstructions = 4'000'000;
  // Questions at once; who comes then is told to come again.
  static constexpr int kMostWaiting = 16;

  // Of factors; empty: none are kept, and plans go by profiles as workers registered them.
  std::string factors_path;
  int64_t advice_ms = 8'000;  // for what to try
};

// What the file says of profiles counts from the first; one that cannot be read costs a line in the
// log, and is written anew.
std::shared_ptr<controller::RunStory> MakeRunStories(StoryOptions options, const Clock& clock);

}  // namespace meshwright::web
