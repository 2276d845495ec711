// Who may call what, what is written of it, and who is signed a certificate.
#include "controller/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "controller/audit_log.h"
#include "controller/auth.h"
#include "controller/trust.h"
#include "security/certificate.h"
#include "security/join_token.h"
#include "tests/fake_clock.h"

namespace meshwright::controller {
namespace {

using security::Role;
using security::Subject;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSubmit = "/meshwright.v1.JobService/Submit";
constexpr const char* kList = "/meshwright.v1.JobService/List";
constexpr const char* kSession = "/meshwright.v1.WorkerService/Session";
constexpr const char* kPutTiles = "/meshwright.v1.BlobService/PutTiles";
constexpr const char* kJoin = "/meshwright.v1.TrustService/Join";
constexpr const char* kRenew = "/meshwright.v1.TrustService/Renew";

Shown WithCertificate(Role role, const std::string& name) {
  return {"", true, Subject{role, name}, "ipv4:10.0.0.2:1"};
}
Shown WithToken(const std::string& token, bool over_tls) {
  return {"Bearer " + token, over_tls, std::nullopt, "ipv4:10.0.0.2:1"};
}

StatusCode CodeFor(const Access& access, const char* method, const Shown& shown) {
  return internal::ToStatus(access.Check(method, shown)).code();
}

TEST(Roles, OfCertificatesSayWhatTheirHoldersMay) {
  const Access access({}, nullptr);
  struct Case {
    Role role;
    std::set<std::string> may;
  };
  const std::vector<Case> cases = {{Role::kOperator, {kSubmit, kList}},
                                   {Role::kViewer, {kList}},
                                   {Role::kWorker, {kSession, kPutTiles, kRenew}},
                                   {Role::kController, {}}};
  for (const Case& each : cases) {
    for (const char* method : {kSubmit, kList, kSession, kPutTiles, kRenew}) {
      const StatusCode expected =
          each.may.count(method) != 0 ? StatusCode::kOk : StatusCode::kPermissionDenied;
      EXPECT_EQ(CodeFor(access, method, WithCertificate(each.role, "x")), expected)
          << security::RoleName(each.role) << " " << method;
    }
  }
  EXPECT_THAT(
      access.Check(kSubmit, WithCertificate(Role::kViewer, "ann")).error().message(),
      AllOf(HasSubstr("viewer 'ann' may not call JobService/Submit"), HasSubstr("an operator")));
  EXPECT_THAT(access.Check("/meshwright.v1.BlobService/Has", WithCertificate(Role::kViewer, "ann"))
                  .error()
                  .message(),
              HasSubstr("BlobService/Has, with which submitting a job begins: that is for"));
}

TEST(Roles, OfTokensSayWhatTheirHoldersMay) {
  const Access access({"cluster", "look", "act"}, nullptr);
  for (const bool over_tls : {false, true}) {
    EXPECT_EQ(CodeFor(access, kList, WithToken("look", over_tls)), StatusCode::kOk);
    EXPECT_EQ(CodeFor(access, kSubmit, WithToken("look", over_tls)), StatusCode::kPermissionDenied);
    EXPECT_EQ(CodeFor(access, kSubmit, WithToken("act", over_tls)), StatusCode::kOk);
    EXPECT_EQ(CodeFor(access, kSession, WithToken("act", over_tls)), StatusCode::kPermissionDenied);
    EXPECT_EQ(CodeFor(access, kSubmit, WithToken("cluster", over_tls)), StatusCode::kOk);
    EXPECT_EQ(CodeFor(access, kList, WithToken("lool", over_tls)), StatusCode::kUnauthenticated);
  }
  EXPECT_EQ(CodeFor(access, kSession, WithToken("cluster", false)), StatusCode::kOk);
  EXPECT_EQ(CodeFor(access, kSession, WithToken("cluster", true)), StatusCode::kPermissionDenied)
      << "a token names no worker";
}

TEST(Roles, OnThisMachineNothingIsAsked) {
  const Access access({}, nullptr);
  for (const char* method : {kSubmit, kList, kSession, kPutTiles, kJoin}) {
    EXPECT_EQ(CodeFor(access, method, {}), StatusCode::kOk) << method;
  }
  EXPECT_EQ(CodeFor(access, kRenew, {}), StatusCode::kPermissionDenied);
}

TEST(Roles, OverTlsSomethingMustBeShownExceptToJoin) {
  const Access access({}, nullptr);
  const Shown nothing{"", true, std::nullopt, "ipv4:10.0.0.2:1"};
  for (const char* method : {kSubmit, kList, kSession, kPutTiles, kRenew}) {
    EXPECT_EQ(CodeFor(access, method, nothing), StatusCode::kUnauthenticated) << method;
  }
  EXPECT_EQ(CodeFor(access, kJoin, nothing), StatusCode::kOk);
  const auto said = [&](const Shown& shown) {
    return std::string(internal::ToStatus(access.Check(kList, shown)).message());
  };
  EXPECT_NE(said(nothing).find("wants a certificate"), std::string::npos);
  const Shown other{"Bearer other", true, std::nullopt, "ipv4:10.0.0.2:1"};
  EXPECT_NE(said(other).find("the token is not this controller's"), std::string::npos);
}

TEST(Roles, WorkerRegistersUnderItsNameOnly) {
  const Access access({}, nullptr);
  const Caller w0 = access.Check(kSession, WithCertificate(Role::kWorker, "w0")).value();
  EXPECT_TRUE(access.CheckWorkerName(w0, "w0").ok());
  const Status other = access.CheckWorkerName(w0, "w1");
  EXPECT_EQ(other.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(other.message(), AllOf(HasSubstr("worker 'w0'"), HasSubstr("register as 'w1'")));
  EXPECT_TRUE(access.CheckWorkerName(Caller{}, "w1").ok()) << "nobody has certificates";
}

TEST(Binding, BeyondLoopbackNeedsCertificatesOrTheWordInsecureAndAToken) {
  EXPECT_TRUE(CheckBind("127.0.0.1", {}).ok());
  const Status open = CheckBind("10.0.0.1", {});
  EXPECT_EQ(open.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(open.message(), AllOf(HasSubstr("meshwright cert init"), HasSubstr("--insecure")));
  EXPECT_FALSE(CheckBind("10.0.0.1", {.token = true}).ok()) << "it would pass in the clear";
  EXPECT_TRUE(CheckBind("10.0.0.1", {.certificates = true}).ok());
  EXPECT_THAT(CheckBind("10.0.0.1", {.insecure = true}).message(), HasSubstr("--token-file"));
  EXPECT_TRUE(CheckBind("10.0.0.1", {.insecure = true, .token = true}).ok());
}

// ---- The audit log ------------------------------------------------------------------------------

std::vector<nlohmann::json> LinesOf(const std::string& path) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : Split(ReadFile(path).value_or(""), '\n')) {
    if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

TEST(Audit, SaysWhenWhoWhatAndTheAnswer) {
  const TempDir dir = TempDir::Make().value();
  FakeClock clock;
  const auto log = AuditLog::Open(dir.File("audit.jsonl"), clock).value();
  const Access access({}, log.get());
  const Caller ann = access.Check(kSubmit, WithCertificate(Role::kOperator, "ann")).value();
  access.Answered(kSubmit, ann, "job 3", OkStatus());
  access.Answered(kList, ann, "", OkStatus());  // it only looks
  EXPECT_FALSE(access.Check(kSubmit, WithCertificate(Role::kViewer, "bob")).has_value());
  const auto lines = LinesOf(dir.File("audit.jsonl"));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["who"], "ann");
  EXPECT_EQ(lines[0]["role"], "operator");
  EXPECT_EQ(lines[0]["from"], "ipv4:10.0.0.2:1");
  EXPECT_EQ(lines[0]["what"], "JobService/Submit");
  EXPECT_EQ(lines[0]["on"], "job 3");
  EXPECT_EQ(lines[0]["answer"], "ok");
  EXPECT_TRUE(lines[0]["when"].get<std::string>().ends_with("Z"));
  EXPECT_EQ(lines[1]["who"], "bob");
  EXPECT_THAT(lines[1]["answer"].get<std::string>(), HasSubstr("permission denied"));
  struct stat found {};
  ASSERT_EQ(::stat(dir.File("audit.jsonl").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

// What a known caller asks for is read before the refusal; what a stranger does is not.
TEST(Audit, RefusalsOfKnownCallersSayUponWhat) {
  const TempDir dir = TempDir::Make().value();
  FakeClock clock;
  const auto log = AuditLog::Open(dir.File("audit.jsonl"), clock).value();
  const Access access({}, log.get());
  const Admission bob = access.Admit(kSubmit, WithCertificate(Role::kViewer, "bob"));
  EXPECT_TRUE(bob.known);
  EXPECT_EQ(bob.refusal.code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(LinesOf(dir.File("audit.jsonl")).empty()) << "nothing is written before it is read";
  access.Refused(kSubmit, bob, "job 7");
  const Admission stranger = access.Admit(kSubmit, {"", true, std::nullopt, "ipv4:10.0.0.9:1"});
  EXPECT_FALSE(stranger.known);
  access.Refused(kSubmit, stranger, "");
  const auto lines = LinesOf(dir.File("audit.jsonl"));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["who"], "bob");
  EXPECT_EQ(lines[0]["on"], "job 7");
  EXPECT_EQ(lines[1]["who"], "");
  EXPECT_EQ(lines[1]["on"], "");
}

TEST(Audit, StrangersCannotFillTheDisk) {
  const TempDir dir = TempDir::Make().value();
  FakeClock clock;
  const auto log = AuditLog::Open(dir.File("audit.jsonl"), clock).value();
  const AuditEntry stranger{"", "", "ipv4:10.0.0.9:1", kSubmit, "", Unauthenticated("who?\n\"")};
  for (int i = 0; i < 1000; ++i) log->WriteRefused(stranger);
  EXPECT_EQ(LinesOf(dir.File("audit.jsonl")).size(), 20U);
  log->Write({"ann", "operator", "", kSubmit, "job 1", OkStatus()});
  EXPECT_EQ(LinesOf(dir.File("audit.jsonl")).back()["refusals_left_out"], 980);
}

// One line of a caller's choosing cannot turn the file over.
TEST(Audit, FieldsAreCutBetweenCharacters) {
  const TempDir dir = TempDir::Make().value();
  FakeClock clock;
  const auto log = AuditLog::Open(dir.File("audit.jsonl"), clock).value();
  std::string umlauts = "x";
  while (umlauts.size() < 5'000'000) umlauts += "\u00e4";
  log->Write({umlauts, "operator", "", kSubmit, umlauts, Internal(umlauts)});
  log->WriteRefused({"", "", "", kSubmit, std::string(1000, '\xff'), Internal(umlauts)});
  const auto lines = LinesOf(dir.File("audit.jsonl"));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["on"], umlauts.substr(0, 199));
  EXPECT_EQ(lines[0]["who"], umlauts.substr(0, 199));
  EXPECT_EQ(lines[1]["on"], std::string(200, '?'));
  for (const auto& line : lines) EXPECT_LE(line["answer"].get<std::string>().size(), 200U);
}

TEST(Audit, IsRotated) {
  const TempDir dir = TempDir::Make().value();
  FakeClock clock;
  const std::string path = dir.File("audit.jsonl");
  ASSERT_TRUE(WriteFileAtomic(path, std::string(AuditLog::kMostBytes - 10, '\n')).ok());
  const auto log = AuditLog::Open(path, clock).value();
  log->Write({"ann", "operator", "", kSubmit, "job 1", OkStatus()});
  EXPECT_EQ(LinesOf(path).size(), 1U);
  EXPECT_EQ(FileSize(path + ".1").value(), AuditLog::kMostBytes - 10);
}

// ---- Signing ------------------------------------------------------------------------------------

class TrustTest : public ::testing::Test {
 protected:
  static constexpr int64_t kNowS = 1'800'000'000;

  TrustTest() {
    auto authority = security::Authority::Create(dir_.File("ca"), kNowS).value();
    sha256_ = authority.sha256();
    secret_ = authority.Secret(security::kJoinPurpose);
    trust_ = std::make_unique<Trust>(
        std::move(authority), security::IssueBook::Open(dir_.File("issued"), kNowS).value(), 900);
  }
  std::string Token(const std::string& name = "", bool once = false) {
    return security::MintJoinToken(secret_, {sha256_, kNowS + 60, name, once}).value();
  }
  TempDir dir_ = TempDir::Make().value();
  std::string sha256_;
  std::string secret_;
  std::unique_ptr<Trust> trust_;
  const security::KeyRequest request_ = security::MakeKeyRequest().value();
};

TEST_F(TrustTest, TokenGivesAWorkersCertificateAndNoOther) {
  const auto made = trust_->Join(Token(), "w0", request_.request_pem, kNowS);
  ASSERT_TRUE(made.has_value()) << made.error();
  const TlsIdentity identity{made->ca_pem, made->cert_pem, request_.key_pem};
  EXPECT_EQ(security::CheckIdentity(identity, {Role::kWorker}, kNowS).value(),
            (Subject{Role::kWorker, "w0"}));
  EXPECT_EQ(trust_->Join(Token(), "w0", request_.request_pem, kNowS + 61).error().code(),
            StatusCode::kUnauthenticated);
  EXPECT_EQ(trust_->Join("mwjoin1.AAAA", "w1", request_.request_pem, kNowS).error().code(),
            StatusCode::kUnauthenticated);
}

TEST_F(TrustTest, NameOfAnotherIsNotGivenAway) {
  ASSERT_TRUE(trust_->Join(Token(), "w0", request_.request_pem, kNowS).has_value());
  const auto other = security::MakeKeyRequest().value();
  EXPECT_EQ(trust_->Join(Token(), "w0", other.request_pem, kNowS).error().code(),
            StatusCode::kPermissionDenied);
  EXPECT_TRUE(trust_->Join(Token("w0"), "w0", other.request_pem, kNowS).has_value());
}

TEST_F(TrustTest, RenewalKeepsTheNameAndItsPlace) {
  ASSERT_TRUE(trust_->Join(Token(), "w0", request_.request_pem, kNowS).has_value());
  const auto renewed = trust_->Renew({Role::kWorker, "w0"}, request_.request_pem, kNowS + 800);
  ASSERT_TRUE(renewed.has_value()) << renewed.error();
  EXPECT_EQ(security::ReadCertificate(renewed->cert_pem)->not_after_s, kNowS + 1700);
  const auto other = security::MakeKeyRequest().value();
  const std::string late =
      security::MintJoinToken(secret_, {sha256_, kNowS + 2000, "", false}).value();
  EXPECT_EQ(trust_->Join(late, "w0", other.request_pem, kNowS + 1000).error().code(),
            StatusCode::kPermissionDenied)
      << "the first certificate has ended, the renewed one has not";
}

// Before anything else is looked at: who asks has shown nothing.
TEST_F(TrustTest, NamesAndTokensHaveBounds) {
  const std::string much(3 << 20, 'x');
  const Status name = internal::ToStatus(trust_->Join("bad", much, request_.request_pem, kNowS));
  EXPECT_EQ(name.code(), StatusCode::kInvalidArgument);
  EXPECT_LT(name.message().size(), 300U);
  const Status token = internal::ToStatus(trust_->Join(much, "w0", request_.request_pem, kNowS));
  EXPECT_EQ(token.code(), StatusCode::kUnauthenticated);
  EXPECT_LT(token.message().size(), 300U);
}

TEST_F(TrustTest, ReplacedCertificateIsNotRenewed) {
  ASSERT_TRUE(trust_->Join(Token(), "w0", request_.request_pem, kNowS).has_value());
  const auto other = security::MakeKeyRequest().value();
  ASSERT_TRUE(trust_->Join(Token("w0"), "w0", other.request_pem, kNowS + 1).has_value());
  const Status old =
      internal::ToStatus(trust_->Renew({Role::kWorker, "w0"}, request_.request_pem, kNowS + 2));
  EXPECT_EQ(old.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(old.message(),
              AllOf(HasSubstr("was given to another host"), HasSubstr("join-token --name w0")));
  EXPECT_TRUE(trust_->Renew({Role::kWorker, "w0"}, other.request_pem, kNowS + 3).has_value());
  // Of one that `cert issue` made the book knows nothing.
  EXPECT_TRUE(trust_->Renew({Role::kWorker, "w9"}, request_.request_pem, kNowS).has_value());
}

}  // namespace
}  // namespace meshwright::controller
