#include "worker/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/tls_identity.h"
#include "security/authority.h"
#include "security/certificate.h"
#include "tests/fake_clock.h"

namespace meshwright::worker {
namespace {

using security::Authority;
using security::Role;

class Renewal : public ::testing::Test {
 protected:
  static constexpr int64_t kLifeS = 900;

  Renewal() {
    const Status issued =
        security::IssueTo(folder(), authority_, {{Role::kWorker, "w0"}, {}, Now(), kLifeS});
    EXPECT_TRUE(issued.ok()) << issued;
  }
  int64_t Now() const { return clock_.UnixMs() / 1000; }
  std::string folder() const { return dir_.File("worker"); }
  IdentityKeeper Keeper() {
    return IdentityKeeper(
        folder(),
        [this](const std::string& request) -> Result<NewCertificate> {
          ++asked_;
          if (!answers_) return Fail(Unavailable("nobody is there"));
          MW_ASSIGN_OR_RETURN(std::string cert_pem,
                              authority_.Sign(request, {{Role::kWorker, "w0"}, {}, Now(), kLifeS}));
          return NewCertificate{std::move(cert_pem), authority_.ca_pem()};
        },
        clock_);
  }

  FakeClock clock_;
  TempDir dir_ = TempDir::Make().value();
  Authority authority_ = Authority::Create(dir_.File("ca"), 0).value();
  int asked_ = 0;
  bool answers_ = true;
};

TEST_F(Renewal, ComesWhenAThirdOfTheLifeIsLeft) {
  IdentityKeeper keeper = Keeper();
  EXPECT_FALSE(keeper.Look().value());
  clock_.AdvanceMs(400'000);
  EXPECT_FALSE(keeper.Look().value());
  EXPECT_EQ(asked_, 0);
  const TlsIdentity before = LoadTlsIdentity(folder()).value();
  clock_.AdvanceMs(200'000);
  EXPECT_TRUE(keeper.Look().value());
  const TlsIdentity after = LoadTlsIdentity(folder()).value();
  EXPECT_EQ(after.key_pem, before.key_pem) << "readers may see one file before the other";
  EXPECT_EQ(security::ReadCertificate(after.cert_pem)->not_after_s, Now() + kLifeS);
  EXPECT_FALSE(keeper.Look().value()) << "it is fresh";
  EXPECT_EQ(asked_, 1);
}

TEST_F(Renewal, IsTriedAgainAndLeavesWhatIsThere) {
  IdentityKeeper keeper = Keeper();
  clock_.AdvanceMs(700'000);
  answers_ = false;
  const TlsIdentity before = LoadTlsIdentity(folder()).value();
  EXPECT_EQ(keeper.Look().error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(LoadTlsIdentity(folder()).value(), before);
  answers_ = true;
  EXPECT_TRUE(keeper.Look().value());
}

}  // namespace
}  // namespace meshwright::worker
