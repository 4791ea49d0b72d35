package debian

import (
	"errors"
	"slices"
	"testing"
)

func TestChooseKernelTakesTheLatestWholeOne(t *testing.T) {
	names := []string{
		"linux-image-cloud-amd64", "linux-image-6.12-cloud-amd64", "linux-image-7.9.9+deb13-amd64",
		"linux-image-7.9.9+deb13-cloud-amd64-unsigned", "linux-image-7.9.9+deb13-cloud-amd64-dbg",
		"linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-10-cloud-amd64",
		"linux-image-6.12.90+deb12-cloud-amd64", "linux-image-6.12.90+deb12.1-cloud-amd64",
		"linux-image-6.12.9+deb12-cloud-amd64",
		"linux-image-7.0.1+deb13-cloud-amd64", "linux-binary-7.0.1+deb13-cloud-amd64",
		"linux-image-7.3.4+deb13-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64",
		"linux-modules-7.3.4+deb13-cloud-amd64", "linux-base-7.3.4+deb13-cloud-amd64",
		"linux-image-7.3.5+deb13-cloud-amd64", "linux-binary-7.3.5+deb13-cloud-amd64",
	}
	for _, c := range []struct {
		series, release string
		packages        []string
	}{
		{"6.1", "6.1.0-10-cloud-amd64", []string{"linux-image-6.1.0-10-cloud-amd64"}},
		{"6.12", "6.12.90+deb12.1-cloud-amd64", []string{"linux-image-6.12.90+deb12.1-cloud-amd64"}},
		{Newest, "7.3.4+deb13-cloud-amd64", []string{
			"linux-binary-7.3.4+deb13-cloud-amd64", "linux-modules-7.3.4+deb13-cloud-amd64",
			"linux-base-7.3.4+deb13-cloud-amd64"}},
		{"7.0", "", nil}, // its modules have gone
		{"6.18", "", nil},
	} {
		release, packages, err := chooseKernel(c.series, names)
		if release != c.release || !slices.Equal(packages, c.packages) {
			t.Errorf("%s: got %q of %q", c.series, release, packages)
		}
		none := (*NoKernelError)(nil)
		if wantNone := c.release == ""; errors.As(err, &none) != wantNone || wantNone && none.Series != c.series {
			t.Errorf("%s: %v", c.series, err)
		}
	}
}
