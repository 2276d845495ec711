// What really happened in a job's steps, beside what its plan forecast: told of plans and of what
// devices wrote down, asked by people. Somebody else makes it (web/run_stories.h does), since
// this room forecasts nothing.
//
// Thread rule: thread-safe; nothing blocks. Ownership: outlives the controller that it is given.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "controller/events.h"
#include "controller/planning.h"
#include "controller/step_figures.h"
#include "ir/step_record.h"
#include "mesh/topology.h"

namespace meshwright::controller {

enum class StoryForm : uint8_t { kTrace, kTable, kTableJson, kWhy, kWhyJson };
inline constexpr int kStoryForms = 5;

struct StoryQuestion {
  JobId job{0};
  ir::StepRange steps = {};  // count 0: those that were recorded last
  StoryForm form = StoryForm::kTable;
  // Whether nobody waits for the answer any longer; called on any thread until there is one. Null:
  // somebody does.
  std::function<bool()> gone = nullptr;
};

class RunStory {
 public:
  virtual ~RunStory() = default;

  // A job is to run by this plan, or may.
  virtual void OnPlan(MadePlan made) = 0;
  // It begins to run, by the newest plan of this layout.
  virtual void OnRun(JobId job, std::string layout) = 0;
  virtual void OnRecorded(StepsRecorded recorded) = 0;
  // Answers once, on a thread of its own, or at once when it has been stopped or too many wait.
  // Errors: kNotFound: none of the steps is recorded, or not yet; kFailedPrecondition: the job's
  // plan is not known here; kResourceExhausted: come again; kCancelled: the asker has gone.
  virtual void Ask(const StoryQuestion& question,
                   std::function<void(Result<std::string>)> answer) = 0;
  // The profile as steps have shown it; the same one where nothing is known.
  virtual mesh::SharedProfile Measured(const mesh::SharedProfile& profile) = 0;
  // Told, on a thread of its own, what newly recorded steps show, and of plans made ahead by which
  // jobs run now. Before anything else is called.
  virtual void Listen(std::function<void(const StepFigures&)> listener, PlanListener taken_up) = 0;
  // What was recorded is kept first; questions that need a search are refused. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace meshwright::controller
