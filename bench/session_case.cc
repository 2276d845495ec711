#include "bench/session_case.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/median.h"
#include "client/client.h"
#include "client/program.h"
#include "client/trainer.h"

namespace meshwright::bench {
Result<ir::JobRequest> TinyJob() {
  MW_ASSIGN_OR_RETURN(
      ir::JobProgram program,
      client::MakeProgram(
          "double", {{"x", {ir::DType::kF32, {1, 4}}}},
          [](client::Builder& b, const client::Batch& in) {
            b.SetOutput("y", b.AddOne(ir::Op::kScale, {in.at("x")}, {{"factor", 2.0}}));
            return OkStatus();
          }));
  return client::JobBuilder("call")
      .Batch(1, 1)
      .Program(std::move(program))
      .Driver({ir::DriverKind::kClient, "", 0, 0})
      .SaveWeights(false)
      .Build();
}

Result<SessionCase> RunSessionCase(const std::string& address, int64_t calls) {
  using Clock = std::chrono::steady_clock;
  client::Client::Options options;
  options.address = address;
  MW_ASSIGN_OR_RETURN(const auto client, client::Client::Connect(options));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, TinyJob());
  MW_ASSIGN_OR_RETURN(const auto session, client->OpenSession(job));
  const client::Feeds feeds = {{"x", client::Tensor::Of<float>({1, 4}, {1, 2, 3, 4})}};
  std::vector<double> call_seconds, step_seconds;
  constexpr int64_t kWarm = 100;
  for (int64_t i = 0; i < calls + kWarm; ++i) {
    const Clock::time_point begin = Clock::now();
    MW_ASSIGN_OR_RETURN(const client::Answer answer, session->Run("double", feeds));
    if (i < kWarm) continue;
    call_seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    step_seconds.push_back(answer.seconds);
  }
  MW_TRY(session->Close());
  return SessionCase{calls, Median(call_seconds), Median(step_seconds)};
}

}  // namespace meshwright::bench
