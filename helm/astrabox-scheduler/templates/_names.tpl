{{- /* Names and labels. A name has at most 63 characters with what is put behind it. */ -}}
{{- define "astrabox-scheduler.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "astrabox-scheduler.fullname" -}}
{{- $name := include "astrabox-scheduler.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $full .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "astrabox-scheduler.operator" -}}
{{- include "astrabox-scheduler.fullname" . }}-operator
{{- end }}

{{- define "astrabox-scheduler.provider" -}}
{{- include "astrabox-scheduler.fullname" . }}-provider
{{- end }}

{{- define "astrabox-scheduler.test" -}}
{{- include "astrabox-scheduler.fullname" . }}-test
{{- end }}

{{- /* Of cluster-wide objects: two namespaces may have a release of the same name. */ -}}
{{- define "astrabox-scheduler.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "astrabox-scheduler.fullname" .) }}
{{- end }}

{{- define "astrabox-scheduler.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "astrabox-scheduler.operator" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the service account of the operator, or let the chart create one with serviceAccount.create=true" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "astrabox-scheduler.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/name: {{ include "astrabox-scheduler.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: astrabox
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "astrabox-scheduler.operatorLabels" -}}
{{ include "astrabox-scheduler.labels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{- /* Labels, and those of a value; a key in both has the value's, since YAML has each key once. */ -}}
{{- define "astrabox-scheduler.labelsWith" -}}
{{- $labels := fromYaml (index . 0) }}
{{- range $key, $value := index . 1 }}
{{- $_ := set $labels $key $value }}
{{- end }}
{{- toYaml $labels }}
{{- end }}

{{- define "astrabox-scheduler.selector" -}}
app.kubernetes.io/name: {{ include "astrabox-scheduler.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "astrabox-scheduler.testSelector" -}}
app.kubernetes.io/name: {{ include "astrabox-scheduler.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end }}

{{- define "astrabox-scheduler.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- /* Only `false` itself gives the CRDs away: Helm drops an empty key, and may be told to leave the schema out. */ -}}
{{- define "astrabox-scheduler.keepsCrds" -}}
{{- if ne (toString .Values.crds.keep) "false" }}true{{ end }}
{{- end }}

{{- /* A variable that stands twice is refused by Helm 4 without its name, and the last one counts in Helm 3. */ -}}
{{- define "astrabox-scheduler.checkExtraEnv" -}}
{{- $settings := dict }}
{{- range $setting, $_ := .Values.settings }}
{{- $_ := set $settings (snakecase $setting | upper | printf "ASTRABOX_SCHEDULER_OPERATOR_%s") $setting }}
{{- end }}
{{- $seen := dict }}
{{- range .Values.extraEnv }}
{{- with get $settings .name }}
{{- printf "extraEnv: ASTRABOX_SCHEDULER_OPERATOR_%s is what settings.%s sets; set that instead" (snakecase . | upper) . | fail }}
{{- end }}
{{- if hasKey $seen .name }}
{{- printf "extraEnv: %s stands twice; leave one of them" .name | fail }}
{{- end }}
{{- $_ := set $seen .name true }}
{{- end }}
{{- end }}

{{- /* The accounts of AstraBox, as subjects. */ -}}
{{- define "astrabox-scheduler.providerSubjects" -}}
{{- range .Values.astrabox.serviceAccounts }}
- kind: ServiceAccount
  name: {{ .name | quote }}
  namespace: {{ default $.Release.Namespace .namespace | quote }}
{{- end }}
{{- end }}

{{- /* Milliseconds of a duration such as 1m30s. */ -}}
{{- define "astrabox-scheduler.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 }}
{{- $sum = add $sum (mul (regexFind "^[0-9]+" . | atoi) (get $units (regexFind "[a-z]+$" .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{- /* Prometheus leaves out a monitor that it cannot use, and only its operator's log says so. */ -}}
{{- define "astrabox-scheduler.checkMonitor" -}}
{{- $values := (index . 0).Values.metrics }}
{{- $name := index . 1 }}
{{- $monitor := get $values $name }}
{{- if and $values.serviceMonitor.enabled $values.podMonitor.enabled }}
{{- fail "metrics.serviceMonitor and metrics.podMonitor: with both, everything is scraped and counted twice; enable one of them" }}
{{- end }}
{{- if gt (include "astrabox-scheduler.milliseconds" $monitor.scrapeTimeout | int) (include "astrabox-scheduler.milliseconds" $monitor.interval | int) }}
{{- printf "metrics.%s.scrapeTimeout: %s is longer than the interval of %s, which Prometheus refuses; make it shorter" $name $monitor.scrapeTimeout $monitor.interval | fail }}
{{- end }}
{{- end }}

{{- /* Rules of a NetworkPolicy: out to the API server, and what else is allowed. */ -}}
{{- define "astrabox-scheduler.egress" -}}
- ports:
    {{- range .apiServerPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with .apiServerCidrs }}
  to:
    {{- range . }}
    - ipBlock:
        cidr: {{ . | quote }}
    {{- end }}
  {{- end }}
{{- with .extra }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What the Pod Security Standard `restricted` asks for; the image names its numeric user. */ -}}
{{- define "astrabox-scheduler.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "astrabox-scheduler.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop:
    - ALL
{{- end }}

{{- /* Metadata of what exists for `helm test` only, but for its place in the order. */ -}}
{{- define "astrabox-scheduler.testMetadata" }}
  name: {{ include "astrabox-scheduler.test" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "astrabox-scheduler.testLabels" . | nindent 4 }}
  annotations:
    {{- include "astrabox-scheduler.testHook" . | nindent 4 }}
{{- end }}

{{- define "astrabox-scheduler.testLabels" -}}
{{ include "astrabox-scheduler.labels" . }}
app.kubernetes.io/component: test
{{- end }}

{{- define "astrabox-scheduler.testHook" -}}
helm.sh/hook: test
{{- /* A pod that has failed stays, to be looked at. */}}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
