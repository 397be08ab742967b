-- dialect: lenses
-- Parcels, their scans and the depots: see README.md beside this file.
SET defaults.topic.autocreate=true;

CREATE TABLE parcels(_key INT, parcel INT, depot STRING, contents STRING[], sent LONG) FORMAT (INT, JSON);
CREATE TABLE scans(_key INT, parcel INT, place STRING, scanned LONG) FORMAT (INT, JSON);
CREATE TABLE depots(_key INT, code STRING, city STRING, country STRING) FORMAT (INT, JSON);

WITH sentParcels AS (SELECT STREAM * FROM parcels EVENTTIME BY sent);
WITH timedScans AS (SELECT STREAM * FROM scans EVENTTIME BY scanned);

-- 1. Key and value are built field by field.
INSERT INTO labels
SELECT STREAM
    parcel AS _key.parcel
    , CONCAT('#', LOWERCASE(depot)) AS label.text
    , SIZEOF(contents) AS label.items
    , LENGTH(depot) > 3 AS is_long
FROM parcels;

-- 2. Two streams: every parcel with its scans of the next or last hour; one without any is told once that is certain.
INSERT INTO scanned
SELECT STREAM sentParcels.parcel, timedScans.place
FROM sentParcels LEFT JOIN timedScans ON sentParcels.parcel = timedScans.parcel
WITHIN 1h;

-- 3. A stream and a table: a parcel whose depot is not known goes out with null, and again when the depot comes.
WITH knownDepots AS (SELECT TABLE * FROM depots);
SET braid.lenses.retention=30d;
INSERT INTO sent_from
SELECT STREAM parcel, city, country
FROM sentParcels LEFT JOIN knownDepots ON sentParcels.depot = knownDepots.code;

-- 4. One record for each thing in a parcel.
INSERT INTO contents
SELECT STREAM parcel, thing
FROM parcels LATERAL contents AS thing
WHERE thing <> 'ink';
