// A worker binary as a user writes one: three types of host actors and a main of one line.
//
// "echo" takes text: "pid" is answered with its process, "keep" never, "large" with too much,
// "fail", "crash" and "hang" do what they say, anything else comes back. "adder" takes numbers and
// answers with their sum so far. "points" makes rows (points.h); its arguments are "", or what
// becomes of it at a step: "fail 3", "crash 3", "keep 3".
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "actor/rows.h"
#include "base/check.h"
#include "tests/e2e/actor_worker/points.h"
#include "worker/main.h"

namespace {

using meshwright::InvalidArgument;
using meshwright::OkStatus;
using meshwright::Result;
using meshwright::Status;
using meshwright::actor::Actor;
using meshwright::actor::Bytes;
using meshwright::actor::Codec;
using meshwright::actor::MessageCodec;
using meshwright::actor::ReplySlot;
using meshwright::actor::Rows;
using meshwright::actor::RowsAsked;

class Echo final : public Actor<Bytes> {
 public:
  Status Receive(Bytes message, ReplySlot<Bytes> reply) override {
    if (message.data == "crash") std::abort();
    while (message.data == "hang") ::pause();
    if (message.data == "fail") return meshwright::Internal("it was told to fail \xff");
    if (message.data == "keep") {
      kept_.push_back(std::move(reply));
    } else {
      if (message.data == "large") message.data.resize(size_t{16} << 20, 'x');
      reply.Complete(message.data == "pid" ? Bytes{std::to_string(::getpid())} : message);
    }
    return OkStatus();
  }

 private:
  std::vector<ReplySlot<Bytes>> kept_;
};

Result<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return meshwright::Fail(InvalidArgument("'" + std::string(text) + "' is no number"));
}

struct Add {
  using Reply = int64_t;
  int64_t number = 0;
};

class Adder final : public Actor<Add> {
 public:
  explicit Adder(int64_t start) : sum_(start) {}
  Status Receive(Add add, ReplySlot<int64_t> reply) override {
    reply.Complete(sum_ += add.number);
    return OkStatus();
  }

 private:
  int64_t sum_;
};

MessageCodec<Add> AddCodec() {
  return {{[](const Add& add) { return std::to_string(add.number); },
           [](std::string_view text) -> Result<Add> {
             MW_ASSIGN_OR_RETURN(const int64_t number, ParseNumber(text));
             return Add{number};
           }},
          {[](const int64_t& sum) { return std::to_string(sum); }, ParseNumber}};
}

class Points final : public Actor<RowsAsked> {
 public:
  Points(std::string fate, int64_t at) : fate_(std::move(fate)), at_(at) {}
  Status Receive(RowsAsked asked, ReplySlot<Rows> reply) override {
    if (asked.step == at_ && fate_ == "crash") std::abort();
    if (asked.step == at_ && fate_ == "keep") {
      kept_.push_back(std::move(reply));
      return OkStatus();
    }
    if (asked.step == at_) {
      reply.Complete(meshwright::Fail(meshwright::OutOfRange("the points ran out")));
      return OkStatus();
    }
    reply.Complete(Make(asked));
    return OkStatus();
  }

 private:
  static Rows Make(const RowsAsked& asked) {
    Rows rows{{"", ""}};
    for (int64_t i = 0; i < asked.count; ++i) {
      const points::Features x = points::FeaturesOf(asked.seed, asked.step, asked.first_row + i);
      const int32_t label = points::LabelOf(x);
      rows.fields[0].append(reinterpret_cast<const char*>(x.data()), sizeof x);
      rows.fields[1].append(reinterpret_cast<const char*>(&label), sizeof label);
    }
    return rows;
  }

  const std::string fate_;
  const int64_t at_;
  std::vector<ReplySlot<Rows>> kept_;
};

Result<std::unique_ptr<Actor<RowsAsked>>> MakePoints(std::string_view args) {
  if (args.empty()) return std::unique_ptr<Actor<RowsAsked>>(std::make_unique<Points>("", -1));
  const size_t space = args.find(' ');
  if (space == std::string_view::npos) {
    return meshwright::Fail(InvalidArgument("'" + std::string(args) + "' is no 'FATE STEP'"));
  }
  MW_ASSIGN_OR_RETURN(const int64_t at, ParseNumber(args.substr(space + 1)));
  return std::unique_ptr<Actor<RowsAsked>>(
      std::make_unique<Points>(std::string(args.substr(0, space)), at));
}

}  // namespace

int main(int argc, char** argv) {
  meshwright::actor::Registry registry;
  MW_CHECK(registry
               .AddBytes("echo",
                         [](std::string_view) -> Result<std::unique_ptr<Actor<Bytes>>> {
                           return std::unique_ptr<Actor<Bytes>>(std::make_unique<Echo>());
                         })
               .ok());
  MW_CHECK(registry
               .Add<Add>(
                   "adder",
                   [](std::string_view args) -> Result<std::unique_ptr<Actor<Add>>> {
                     MW_ASSIGN_OR_RETURN(const int64_t start, ParseNumber(args));
                     return std::unique_ptr<Actor<Add>>(std::make_unique<Adder>(start));
                   },
                   AddCodec())
               .ok());
  MW_CHECK(registry.Add<RowsAsked>("points", MakePoints, meshwright::actor::RowsCodec()).ok());
  return meshwright::worker::Main(argc, argv, registry);
}
