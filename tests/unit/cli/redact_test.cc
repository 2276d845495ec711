#include "cli/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Redact(const std::string& text, std::vector<std::string> known = {}) {
  return Redactor(std::move(known)).Redact(text).text;
}

TEST(Redactor, LeavesOutWhatOpensADoor) {
  const std::string secret = "Zx81kQw9LmNb04Tt7RvYp2";
  const std::string key =
      "-----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY-----\n";
  for (const std::string& text : std::vector<std::string>{
           "password = \"" + secret + "\"", "password=" + secret + " next",
           "AWS_SECRET_ACCESS_KEY=" + secret, "apiKey: '" + secret + "'",
           "{\"api_key\":\"" + secret + "\",\"a\":1}",
           R"({\"token\":\")" + secret + R"(\",\"a\":1})", "MESHWRIGHT_TOKEN=" + secret,
           "MESHWRIGHT_JOIN=@/" + secret, "Authorization: Bearer " + secret,
           "Authorization: Basic " + secret + "==", "s3://ann:" + secret + "@bucket/data.npy",
           "joined with mwjoin1." + secret, "hf_" + secret, "(AKIA" + secret + ")", key,
           "{\"key\":\"" + key.substr(0, key.size() - 30) + "\"}",  // its end is cut off
       }) {
    const Redacted redacted = Redactor({}).Redact(text);
    EXPECT_THAT(redacted.text, Not(HasSubstr(secret))) << text;
    EXPECT_THAT(redacted.text, HasSubstr("(left out)")) << text;
    EXPECT_EQ(redacted.left_out, 1U) << text;
  }
}

TEST(Redactor, LeavesOutWhatIsKnownWhereverItStands) {
  EXPECT_EQ(Redact("a quiet-river in xquiet-rivery", {"quiet-river"}),
            "a (left out) in x(left out)y");
  EXPECT_EQ(Redact("longer-secret", {"secret", "longer-secret"}), "(left out)");
  EXPECT_EQ(Redact("an ab", {"ab"}), "an ab") << "it is a part of any text";
}

TEST(Redactor, KeepsWhatPeopleNeed) {
  for (const char* text : {
           "tokens: 4096, loss per token: 3.21",
           "meshwright_tokens_total{job_id=\"1\"} 320",
           "tokenizer = \"data/tokenizer.json\"",
           "token_file=/etc/meshwright/token",
           "eos_token = \"<|endoftext|>\"",
           "n_kv_heads = 4, monkey: 3, key = value",
           "fail  secret /etc/meshwright/token       mode 644: others on this machine can read it",
           "pass it as 'Authorization: Bearer TOKEN'",
           "https://head:7780/metrics",
           "2026-11-27T05:30:00.123Z warn  controller: worker 3 missed 4 heartbeats",
           "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n",
           "",
       }) {
    EXPECT_EQ(Redact(text), text);
  }
}

TEST(Redactor, CountsPlacesAndKeepsTheRest) {
  const Redacted redacted =
      Redactor({"my-own-token"}).Redact("a=my-own-token\npassword: hunter2, user: ann\n");
  EXPECT_EQ(redacted.text, "a=(left out)\npassword: (left out), user: ann\n");
  EXPECT_EQ(redacted.left_out, 2U);
}

}  // namespace
}  // namespace meshwright::cli
